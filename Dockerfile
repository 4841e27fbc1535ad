# The full stack, Reverb included, for machines whose Python is another one:
#   docker build -t rbs_tf . && docker run -it -v ./runs:/rbs_tf/runs rbs_tf --config=quickstart
FROM python:3.11-slim-bookworm
RUN apt-get update && apt-get install -y --no-install-recommends git make && rm -rf /var/lib/apt/lists/*
WORKDIR /rbs_tf
COPY . .
RUN make .venv/.installed
ENV PATH=/rbs_tf/.venv/bin:$PATH
ENTRYPOINT ["python", "train.py"]
