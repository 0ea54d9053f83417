"""One package for pip, for Dataflow's --setup_file and for a training job's source distribution."""

from setuptools import find_packages, setup

setup(
    name="millrace",
    version="0.2.0.dev0",
    description="Raw data to TFRecords with Beam and tf.Transform, and TensorFlow Estimators trained on them",
    license="Apache-2.0",
    packages=find_packages(include=["schemas", "schemas.*", "beam_jobs", "beam_jobs.*", "trainer", "trainer.*"]),
    package_data={"schemas": ["*.yaml"]},
    python_requires=">=3.10,<3.14",
    # The ranges that the code is written for; constraints.txt holds the versions that it is tested with.
    install_requires=[
        "apache-beam[gcp]>=2.75,<3",
        "google-cloud-storage>=2.18.2,<4",
        "google-crc32c>=1.5",
        "numpy>=1.26",
        "pyarrow>=23",
        "pydantic>=2.11,<3",
        "pyyaml>=6,<7",
        "tensorflow>=2.21,<2.22",
        "tensorflow-estimator==2.15.0",
        "tensorflow-metadata>=1.21,<1.22",
        "tensorflow-transform>=1.21,<1.22",
        "tf_keras>=2.21,<2.22",
        "tfx-bsl>=1.21,<1.22",
        "typing-extensions>=4.14,<5",
    ],
    extras_require={
        "test": [
            "hypothesis",
            "mypy",
            "packaging",
            "pillow",
            "pytest",
            "pytest-xdist",
            "ruff",
            "types-PyYAML",
        ],
    },
)
