# Everything ingestd needs in Google Cloud: buckets, topics, subscriptions, the notification and the log sink, one
# service account with as few rights as it can work with.

locals {
  triggers = length(var.trigger_buckets) > 0 ? var.trigger_buckets : toset([google_storage_bucket.trigger[0].name])
  retain   = "2678400s" # 31 days, the longest that Pub/Sub keeps a message for a subscription
  feeds    = toset(["notifications", "completions"])
}

data "google_storage_project_service_account" "this" {
  project = var.project
}

resource "google_storage_bucket" "trigger" {
  count                       = length(var.trigger_buckets) > 0 ? 0 : 1
  project                     = var.project
  name                        = "${var.project}-trigger"
  location                    = var.location
  uniform_bucket_level_access = true
}

resource "google_storage_bucket" "ops" {
  project                     = var.project
  name                        = "${var.project}-ops"
  location                    = var.location
  uniform_bucket_level_access = true

  lifecycle_rule {
    action {
      type = "Delete"
    }
    condition {
      age            = var.journal_days
      matches_prefix = ["journal/Done/", "journal/Names/"]
    }
  }
  # What was loaded, and what an earlier load has read of a file, is known for so long: no rule that deletes more of the
  # journal may be added.
  lifecycle_rule {
    action {
      type = "Delete"
    }
    condition {
      age            = var.register_days
      matches_prefix = ["journal/register/", "journal/Trail/"]
    }
  }
  # Prepared files go when their batch ends; this is for what a crash leaves behind.
  lifecycle_rule {
    action {
      type = "Delete"
    }
    condition {
      age            = 14
      matches_prefix = ["staging/"]
    }
  }
}

resource "google_storage_bucket" "config" {
  project                     = var.project
  name                        = "${var.project}-config"
  location                    = var.location
  uniform_bucket_level_access = true
  versioning {
    enabled = true
  }
}

resource "google_pubsub_topic" "notifications" {
  project = var.project
  name    = "storage-notifications"
}

resource "google_pubsub_topic" "completions" {
  project = var.project
  name    = "bigquery-completions"
}

resource "google_pubsub_topic" "dead_letter" {
  project = var.project
  name    = "ingestd-dead-letter"
}

# Without a subscription a dead letter would be gone at once.
resource "google_pubsub_subscription" "dead_letter" {
  project                    = var.project
  name                       = "ingestd-dead-letter"
  topic                      = google_pubsub_topic.dead_letter.id
  message_retention_duration = local.retain
  expiration_policy {
    ttl = "" # never
  }
}

resource "google_pubsub_subscription" "feed" {
  for_each                   = local.feeds
  project                    = var.project
  name                       = "ingestd-${each.key}"
  topic                      = each.key == "notifications" ? google_pubsub_topic.notifications.id : google_pubsub_topic.completions.id
  ack_deadline_seconds       = 60
  message_retention_duration = local.retain
  expiration_policy {
    ttl = "" # never: a quiet month must not delete the subscription
  }
  # No dead_letter_policy: it would give up good messages after an outage. The daemon itself sets unreadable ones aside.
  retry_policy {
    minimum_backoff = "10s"
    maximum_backoff = "600s"
  }
}

resource "google_storage_notification" "trigger" {
  for_each       = local.triggers
  bucket         = each.key
  topic          = google_pubsub_topic.notifications.id
  payload_format = "JSON_API_V1"
  event_types    = var.event_types
  depends_on     = [google_pubsub_topic_iam_member.storage_publishes]
  # Other event types take a new notification, and the old one stays until it is there: a file that is announced twice is
  # loaded once, one that nobody announces waits for a sweep or a backfill.
  lifecycle {
    create_before_destroy = true
  }
}

resource "google_logging_project_sink" "completions" {
  project                = var.project
  name                   = "bigquery-completions"
  destination            = "pubsub.googleapis.com/${google_pubsub_topic.completions.id}"
  unique_writer_identity = true
  filter                 = <<-EOT
    protoPayload.metadata."@type"="type.googleapis.com/google.cloud.audit.BigQueryAuditMetadata"
    protoPayload.metadata.jobChange.after="DONE"
  EOT
}
