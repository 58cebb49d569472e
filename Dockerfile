# ingestd as a container: a wheel built from this repository, its pinned dependencies, and the Java that Spark runs on.
FROM python:3.11-slim-bookworm AS build
WORKDIR /build
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src ./src
# The environment is copied into the final image as a whole: no compiler, no pip cache, no sources there.
RUN python -m venv /opt/ingestd \
    && /opt/ingestd/bin/pip install --no-cache-dir --disable-pip-version-check -c constraints.txt .

FROM python:3.11-slim-bookworm
# Debian 12 carries Java 17; its security updates are wanted, so no exact version.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends default-jre-headless tini \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin ingestd
COPY --from=build /opt/ingestd /opt/ingestd
ENV PATH=/opt/ingestd/bin:$PATH \
    JAVA_HOME=/usr/lib/jvm/default-java \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
USER 10001
EXPOSE 9090
ENTRYPOINT ["tini", "--", "ingestd"]
CMD ["run", "--config", "/etc/ingestd/ingestd.yaml"]
