# The load-state table's dataset: the daemon makes the table in it, and may make no dataset itself.
resource "google_bigquery_dataset" "load_state" {
  count      = var.load_state_dataset == "" ? 0 : 1
  project    = var.project
  dataset_id = var.load_state_dataset
  location   = var.location
}

resource "google_bigquery_dataset_iam_member" "load_state" {
  count      = length(google_bigquery_dataset.load_state)
  project    = var.project
  dataset_id = google_bigquery_dataset.load_state[count.index].dataset_id
  role       = "roles/bigquery.dataEditor"
  member     = google_service_account.ingestd.member
}
