"""Settings of this machine that a build of an image needs: an index of packages, certificates, a mirror.

They reach the build as secrets, which no layer keeps.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

MOUNTED = "/run/secrets"
PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


def pip_value(name: str) -> str:
    """Return a value of pip's configuration; "": it isn't set."""
    command = [sys.executable, "-m", "pip", "config", "get", f"global.{name}"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def proxies(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the proxies, which are arguments that engines know: no layer keeps them either."""
    return {name: environment[name] for name in PROXIES if environment.get(name)}


def build_secrets(
    folder: Path,
    environment: Mapping[str, str],
    truststore: Path | None = None,
    pip: Callable[[str], str] = pip_value,
) -> dict[str, Path]:
    """Write the settings to a file in `folder` that a shell reads; return secrets by their names.

    `truststore`: the certificates of this machine's Java. They are used if this machine has its own
    certificates for Python.
    """
    secrets: dict[str, Path] = {}
    variables: dict[str, str] = {}
    index = environment.get("PIP_INDEX_URL") or pip("index-url")
    extra = environment.get("PIP_EXTRA_INDEX_URL") or pip("extra-index-url")
    for value, of_pip, of_uv in (
        (index, "PIP_INDEX_URL", "UV_DEFAULT_INDEX"),
        (extra, "PIP_EXTRA_INDEX_URL", "UV_INDEX"),
    ):
        if given := environment.get(of_uv) or value:
            variables |= {of_pip: value or given, of_uv: given}

    java = environment.get("JAVA_TOOL_OPTIONS", "")
    certificates = environment.get("SSL_CERT_FILE") or environment.get("PIP_CERT") or pip("cert")
    if certificates:
        secrets["certificates"] = Path(certificates)
        variables |= dict.fromkeys(("SSL_CERT_FILE", "PIP_CERT"), f"{MOUNTED}/certificates")
        if truststore and truststore.exists():
            secrets["truststore"] = truststore
            java += f" -Djavax.net.ssl.trustStore={MOUNTED}/truststore"
    if java.strip():
        variables["JAVA_TOOL_OPTIONS"] = java.strip()
    if ivy := environment.get("LB_IVY_SETTINGS"):
        secrets["ivysettings"] = Path(ivy)
        variables["LB_IVY_SETTINGS"] = f"{MOUNTED}/ivysettings"

    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in variables.items()]
    secrets["settings"] = folder / "settings"
    secrets["settings"].write_text("".join(lines))
    return secrets
