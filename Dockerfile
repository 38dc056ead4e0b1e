# vflsim with PyTorch for the CPU alone, and results in the folder that is mounted at /work:
#   docker build -t vflsim . && docker run --rm -v "$PWD:/work" vflsim run quickstart --quick
FROM python:3.13-slim AS tools
RUN pip install --no-cache-dir uv
WORKDIR /opt/vflsim

FROM tools
COPY . .
RUN uv pip install --system --no-cache --torch-backend cpu -c constraints.txt . && useradd --create-home runner
USER runner
WORKDIR /work
ENTRYPOINT ["vflsim"]
CMD ["--help"]
