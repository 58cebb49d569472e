# Datasets and what the daemon may do in them. A dataset is made here (datasets, transient_datasets, the load state's) or was
# there before (existing_datasets, side_input_datasets); rights are given on these and on no other.

resource "google_bigquery_dataset" "destination" {
  for_each   = var.datasets
  project    = var.project
  dataset_id = each.key
  location   = var.location
}

# Only temporary tables live here; what a crash leaves behind goes by itself.
resource "google_bigquery_dataset" "transient" {
  for_each                    = var.transient_datasets
  project                     = var.project
  dataset_id                  = each.key
  location                    = var.location
  default_table_expiration_ms = 7 * 24 * 3600 * 1000
}

# The load-state table's dataset: the daemon makes the table in it, and may make no dataset itself.
resource "google_bigquery_dataset" "load_state" {
  count      = var.load_state_dataset == "" ? 0 : 1
  project    = var.project
  dataset_id = var.load_state_dataset
  location   = var.location
}

locals {
  made     = merge(google_bigquery_dataset.destination, google_bigquery_dataset.transient)
  editable = setunion([for one in local.made : one.dataset_id], google_bigquery_dataset.load_state[*].dataset_id, var.existing_datasets)
}

resource "google_bigquery_dataset_iam_member" "edits" {
  for_each   = local.editable
  project    = var.project
  dataset_id = each.key
  role       = "roles/bigquery.dataEditor"
  member     = google_service_account.ingestd.member
}

resource "google_bigquery_dataset_iam_member" "reads" {
  for_each   = var.side_input_datasets
  project    = var.project
  dataset_id = each.key
  role       = "roles/bigquery.dataViewer"
  member     = google_service_account.ingestd.member
}
