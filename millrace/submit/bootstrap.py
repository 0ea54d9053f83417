"""What runs first on another machine: `python -c THIS URL... -- ARGS` installs the packages, and becomes a replica.

Its text is sent as an argument, so it imports nothing of this package. The image has all dependencies, so none is
resolved or downloaded; the packages are found before those of the image, of which this one may be another version.
"""

import os
import subprocess
import sys
import tempfile


def main(urls: list[str], arguments: list[str]) -> None:
    """Installs packages from gs:// or local disk, and runs a replica in this process's place."""
    folder = tempfile.mkdtemp(prefix="millrace-replica-")
    archives = [fetch(url, folder) for url in urls]
    site = os.path.join(folder, "site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--no-build-isolation", "--target", site, *archives], check=True)  # noqa: S603
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [site, os.environ.get("PYTHONPATH")]))
    os.chdir(folder)  # Python finds what lies in its folder first, which may be the image's copy of the same packages
    os.execv(sys.executable, [sys.executable, "-m", "trainer.replica", *arguments])  # noqa: S606


def fetch(url: str, folder: str) -> str:
    """Copies a file here; returns its path."""
    from google.cloud import storage

    bucket, _, name = url.removeprefix("gs://").partition("/")
    path = os.path.join(folder, os.path.basename(name))
    storage.Client().bucket(bucket).blob(name).download_to_filename(path)
    return path


if __name__ == "__main__":
    end = sys.argv.index("--")
    main(sys.argv[1:end], sys.argv[end + 1 :])
