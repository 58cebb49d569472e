"""Cloud Storage on local disk."""
