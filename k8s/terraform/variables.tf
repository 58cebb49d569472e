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

variable "event_types" {
  description = "What the trigger buckets tell of. Add OBJECT_DELETE where success files are used and deleting `_bqlock` or a `_config/` file shall count; each deletion is a message then, the daemon's own included."
  type        = set(string)
  default     = ["OBJECT_FINALIZE"]
  validation {
    condition     = contains(var.event_types, "OBJECT_FINALIZE")
    error_message = "Without OBJECT_FINALIZE nobody tells of new files: add it."
  }
}

variable "datasets" {
  description = "Datasets that rules load into, made here; the daemon may edit their tables."
  type        = set(string)
  default     = []
}

variable "existing_datasets" {
  description = "The same, for datasets that are there already, temporary tables' included."
  type        = set(string)
  default     = []
}

variable "transient_datasets" {
  description = "Datasets for temporary tables (Transient.Dataset of rules), made here; their tables expire after a week."
  type        = set(string)
  default     = []
}

variable "load_state_dataset" {
  description = "Dataset of the load-state table (setting load_state.table), made here; empty: load_state is switched off."
  type        = string
  default     = "bigquery_loads"
}

variable "side_input_datasets" {
  description = "Datasets, there already, that side inputs and templates are read from."
  type        = set(string)
  default     = []
}

variable "kubernetes_service_accounts" {
  description = "Namespace/name of the Kubernetes service accounts that act as the daemon: one per overlay, and Spark's executors."
  type        = set(string)
  default     = ["ingestd/ingestd", "ingestd-dev/ingestd", "ingestd/spark-executor"]
}

variable "routes" {
  description = "Whether the settings have routes, which follow jobs that others ran."
  type        = bool
  default     = false
}

variable "journal_days" {
  description = "Days for which finished batches stay in the journal, for `explain` and `replay`. With success files and without the load state: no less than recovery.horizon."
  type        = number
  default     = 60
  validation {
    condition     = var.journal_days >= 38
    error_message = "A batch may be under way for a week and its messages come back for 31 days: keep 38 days or more."
  }
}

variable "register_days" {
  description = "Days for which a loaded file is known when it is announced again: no less than recovery.horizon."
  type        = number
  default     = 800
  validation {
    condition     = var.register_days >= 400
    error_message = "The daemon promises 400 days (recovery.horizon)."
  }
}
