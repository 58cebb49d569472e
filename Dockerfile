# ingestd as a container: a wheel built from this repository, its pinned dependencies, the Java that Spark runs on, and
# the connector with which a Spark cluster reads Cloud Storage.
FROM maven:3.9-eclipse-temurin-17 AS connector
# One jar with everything it needs inside, by its coordinates. The tests take the connector's version from here.
ARG GCS_CONNECTOR=com.google.cloud.bigdataoss:gcs-connector:3.1.18:jar:shaded
RUN mvn --batch-mode --quiet org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy -Dartifact="$GCS_CONNECTOR" \
    -DoutputDirectory=/jars -Dmdep.stripVersion=true -Dmdep.stripClassifier=true

FROM python:3.11-slim-bookworm AS dependencies
ENV PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PYTHONDONTWRITEBYTECODE=1
WORKDIR /build
COPY constraints.txt pyproject.toml ./
# A layer of their own: a node that has the last version fetches only what changed.
RUN python -m venv /opt/ingestd \
    && python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['dependencies'], sep='\n')" >requirements.txt \
    && /opt/ingestd/bin/pip install -c constraints.txt -r requirements.txt \
    && /opt/ingestd/bin/python -m compileall -q /opt/ingestd/lib

FROM dependencies AS build
COPY README.md LICENSE ./
COPY src ./src
RUN pip wheel --no-deps --wheel-dir /wheels . \
    && /opt/ingestd/bin/pip install --no-deps --root /own /wheels/*.whl \
    && /opt/ingestd/bin/python -m compileall -q -s /own /own/opt/ingestd/lib

FROM python:3.11-slim-bookworm
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="ingestd" \
      org.opencontainers.image.description="Files from Cloud Storage into BigQuery: event-driven, batched, transformed on Spark, exactly once" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION"
# Debian 12 carries Java 17; its security updates are wanted, so no exact version.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends default-jre-headless tini \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin ingestd
# Environments as they are: no compiler, no pip cache, no sources.
COPY --from=dependencies /opt/ingestd /opt/ingestd
COPY --from=connector /jars/gcs-connector.jar /opt/ingestd/lib/python3.11/site-packages/pyspark/jars/gcs-connector.jar
COPY --from=build /own/opt/ingestd /opt/ingestd
COPY k8s/entrypoint /opt/ingestd/bin/entrypoint
ENV PATH=/opt/ingestd/bin:$PATH \
    JAVA_HOME=/usr/lib/jvm/default-java \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
USER 10001
# Downloads, shuffles and prepared files; everything else may be read-only.
VOLUME /tmp
EXPOSE 9090
HEALTHCHECK --interval=30s --timeout=5s --start-period=180s CMD ["python", "-c", "import http.client; ask = http.client.HTTPConnection('127.0.0.1', 9090, timeout=4); ask.request('GET', '/healthz'); raise SystemExit(ask.getresponse().status != 200)"]
ENTRYPOINT ["tini", "--", "entrypoint"]
CMD ["run", "--config", "/etc/ingestd/ingestd.yaml"]
