# The services that ingestd talks to. GKE and Artifact Registry are the cluster's business: docs/deployment.md.
resource "google_project_service" "api" {
  for_each           = toset(["bigquery", "iam", "logging", "pubsub", "storage"])
  project            = var.project
  service            = "${each.key}.googleapis.com"
  disable_on_destroy = false
}
