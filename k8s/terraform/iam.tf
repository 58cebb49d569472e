# Who may do what. docs/deployment.md has the same as a table, with the reason for each.

resource "google_service_account" "ingestd" {
  project      = var.project
  account_id   = "ingestd"
  display_name = "ingestd"
}

resource "google_service_account_iam_member" "workload_identity" {
  service_account_id = google_service_account.ingestd.name
  role               = "roles/iam.workloadIdentityUser"
  member             = "serviceAccount:${var.project}.svc.id.goog[${var.kubernetes_service_account}]"
}

resource "google_pubsub_topic_iam_member" "storage_publishes" {
  project = var.project
  topic   = google_pubsub_topic.notifications.name
  role    = "roles/pubsub.publisher"
  member  = "serviceAccount:${data.google_storage_project_service_account.this.email_address}"
}

resource "google_pubsub_topic_iam_member" "sink_publishes" {
  project = var.project
  topic   = google_pubsub_topic.completions.name
  role    = "roles/pubsub.publisher"
  member  = google_logging_project_sink.completions.writer_identity
}

# Pub/Sub itself moves messages that nobody could settle.
resource "google_pubsub_topic_iam_member" "pubsub_dead_letters" {
  project = var.project
  topic   = google_pubsub_topic.dead_letter.name
  role    = "roles/pubsub.publisher"
  member  = "serviceAccount:${local.agent}"
}

resource "google_pubsub_subscription_iam_member" "pubsub_forwards" {
  for_each     = google_pubsub_subscription.feed
  project      = var.project
  subscription = each.value.name
  role         = "roles/pubsub.subscriber"
  member       = "serviceAccount:${local.agent}"
}

resource "google_pubsub_subscription_iam_member" "pulls" {
  for_each     = google_pubsub_subscription.feed
  project      = var.project
  subscription = each.value.name
  role         = "roles/pubsub.subscriber"
  member       = google_service_account.ingestd.member
}

resource "google_pubsub_topic_iam_member" "sets_aside" {
  project = var.project
  topic   = google_pubsub_topic.dead_letter.name
  role    = "roles/pubsub.publisher"
  member  = google_service_account.ingestd.member
}

resource "google_storage_bucket_iam_member" "files" {
  for_each = setunion(local.triggers, toset([google_storage_bucket.ops.name]))
  bucket   = each.key
  role     = "roles/storage.objectUser"
  member   = google_service_account.ingestd.member
}

resource "google_storage_bucket_iam_member" "rules" {
  bucket = google_storage_bucket.config.name
  role   = "roles/storage.objectViewer"
  member = google_service_account.ingestd.member
}

resource "google_project_iam_member" "jobs" {
  project = var.project
  role    = "roles/bigquery.jobUser"
  member  = google_service_account.ingestd.member
}

resource "google_bigquery_dataset_iam_member" "destinations" {
  for_each   = setunion(var.datasets, var.transient_datasets)
  project    = var.project
  dataset_id = each.key
  role       = "roles/bigquery.dataEditor"
  member     = google_service_account.ingestd.member
}

resource "google_bigquery_dataset_iam_member" "side_inputs" {
  for_each   = var.side_input_datasets
  project    = var.project
  dataset_id = each.key
  role       = "roles/bigquery.dataViewer"
  member     = google_service_account.ingestd.member
}
