variable "project" {
  description = "The project that runs the jobs and owns the topics."
  type        = string
}

variable "location" {
  description = "Where the buckets are; the destination datasets should be in the same place."
  type        = string
  default     = "EU"
}

variable "trigger_buckets" {
  description = "Existing buckets whose new objects are ingested; empty: one called <project>-trigger is created."
  type        = set(string)
  default     = []
}

variable "datasets" {
  description = "Datasets that rules load into; the daemon may edit their tables."
  type        = set(string)
  default     = []
}

variable "transient_datasets" {
  description = "Datasets that the daemon itself creates tables in and drops them from."
  type        = set(string)
  default     = []
}

variable "load_state_dataset" {
  description = "Dataset of the load-state table (setting load_state.table); empty: load_state is switched off."
  type        = string
  default     = "bigquery_loads"
}

variable "side_input_datasets" {
  description = "Datasets that side inputs and templates are read from."
  type        = set(string)
  default     = []
}

variable "kubernetes_service_account" {
  description = "Namespace and name of the Kubernetes service account that runs the daemon."
  type        = string
  default     = "ingestd/ingestd"
}

variable "max_delivery_attempts" {
  description = "Deliveries of one message before Pub/Sub itself gives up; the daemon settles messages long before."
  type        = number
  default     = 100
}

variable "journal_days" {
  description = "Days for which finished batches stay in the journal; redelivery ends after 31."
  type        = number
  default     = 60
}
