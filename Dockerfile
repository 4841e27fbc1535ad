# The full stack, Reverb included, for machines whose Python is another one, and for the pods of a cluster:
#   docker build -t rbs_tf . && docker run -it -v ./runs:/rbs_tf/runs rbs_tf --config=quickstart
FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates git make python3.11-venv \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /rbs_tf
COPY . .
RUN PIP_NO_CACHE_DIR=1 make .venv/.installed
ENV PATH=/rbs_tf/.venv/bin:$PATH
ENTRYPOINT ["python", "train.py"]
