"""`make walk`: make the journeys and write `docs/walk.md` anew."""

from tests.walk.journeys import Walk
from tests.walk.page import PAGE, render

if __name__ == "__main__":
    PAGE.write_text(render(Walk().run()), encoding="utf-8")
    print(f"wrote {PAGE}")
