# Who may do what. docs/deployment.md has the same as a table, with the reason for each.

resource "google_service_account" "ingestd" {
  project      = var.project
  account_id   = "ingestd"
  display_name = "ingestd"
}

# The pool in the member's name comes with the project's first cluster that has Workload Identity.
resource "google_service_account_iam_member" "workload_identity" {
  for_each           = var.kubernetes_service_accounts
  service_account_id = google_service_account.ingestd.name
  role               = "roles/iam.workloadIdentityUser"
  member             = "serviceAccount:${var.project}.svc.id.goog[${each.key}]"
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

# Routes follow jobs that others ran: the daemon has to look at them.
resource "google_project_iam_member" "routes" {
  count   = var.routes ? 1 : 0
  project = var.project
  role    = "roles/bigquery.resourceViewer"
  member  = google_service_account.ingestd.member
}
