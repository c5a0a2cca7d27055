# The queues of a cluster, kept by Terraform: `fifo apply` carries each change of the file out.
#
#     terraform apply -var url=fifo://10.0.0.1:7101,10.0.0.2:7101,10.0.0.3:7101 -var queues=queues.toml
#
# Needs the command line (pip install 'fifo-quorum[server]') where Terraform runs, and no provider from
# elsewhere. FIFO_URL may have the credentials instead: then leave `url` empty, so that the state of
# Terraform never has them.
terraform {
  required_version = ">= 1.4"
}

variable "url" {
  description = "The cluster, as fifo://host:port,...; empty: FIFO_URL has it."
  type        = string
  default     = ""
}

variable "queues" {
  description = "Path of the file of queues, as `fifo export` writes it."
  type        = string
  default     = "queues.toml"
}

variable "prune" {
  description = "Pattern of the queues that are deleted, with their messages, where the file lacks them; empty: none."
  type        = string
  default     = ""
}

resource "terraform_data" "queues" {
  # Anew where the file has changed, or what is to be done with it.
  triggers_replace = [filesha256(var.queues), var.url, var.prune]

  provisioner "local-exec" {
    # A file that is wrong, or that asks for what cannot be changed, changes nothing and fails here.
    command     = "fifo apply \"$QUEUES\" --yes $${PRUNE:+--prune --only \"$PRUNE\"}"
    interpreter = ["/bin/sh", "-euc"]
    environment = merge(
      { QUEUES = abspath(var.queues), PRUNE = var.prune },
      var.url == "" ? {} : { FIFO_URL = var.url },
    )
  }
}

output "applied" {
  description = "The digest of the file that was applied last."
  value       = filesha256(var.queues)
  depends_on  = [terraform_data.queues]
}
