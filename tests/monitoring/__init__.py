"""Alert rules and dashboard: what they name exists, and the rules fire when they must."""
