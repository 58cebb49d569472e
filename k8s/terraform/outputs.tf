output "service_account" {
  description = "For the annotation `iam.gke.io/gcp-service-account` of the Kubernetes service account."
  value       = google_service_account.ingestd.email
}

output "buckets" {
  description = "Where files are dropped, where the daemon keeps its books, where rules live."
  value = {
    triggers = local.triggers
    ops      = google_storage_bucket.ops.name
    config   = google_storage_bucket.config.name
  }
}

output "topics" {
  description = "Publish a test notification to the first."
  value = {
    notifications = google_pubsub_topic.notifications.id
    completions   = google_pubsub_topic.completions.id
    dead_letter   = google_pubsub_topic.dead_letter.id
  }
}
