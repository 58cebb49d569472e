"""What Kubernetes puts into the environment of every pod, settings or not."""

# What a kubelet gives every pod of a namespace with the Services `ingestd` (two ports) and `ingestd-prod` (IPv6).
SERVICE_LINKS = {
    "INGESTD_SERVICE_HOST": "10.96.0.17",
    "INGESTD_SERVICE_PORT": "9090",
    "INGESTD_SERVICE_PORT_HTTP": "9090",
    "INGESTD_SERVICE_PORT_SPARK_DRIVER": "7078",
    "INGESTD_PORT": "tcp://10.96.0.17:9090",
    "INGESTD_PORT_9090_TCP": "tcp://10.96.0.17:9090",
    "INGESTD_PORT_9090_TCP_PROTO": "tcp",
    "INGESTD_PORT_9090_TCP_PORT": "9090",
    "INGESTD_PORT_9090_TCP_ADDR": "10.96.0.17",
    "INGESTD_PORT_53_UDP": "udp://10.96.0.17:53",
    "INGESTD_PROD_SERVICE_HOST": "fd00::17",
    "INGESTD_PROD_PORT": "tcp://[fd00::17]:9090",
    "INGESTD_PROD_PORT_9090_TCP_ADDR": "fd00::17",
}
