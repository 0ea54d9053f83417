"""What the errors of Amazon's client libraries mean, and what to do. They are identified by name, without an import."""

from __future__ import annotations

from schemas import outage
from schemas.storage.redact import redacted

MISSING = ("NoSuchKey", "NoSuchBucket", "404")
CHANGED = (*MISSING, "PreconditionFailed", "412", "ConditionalRequestConflict", "409")
_LOG_IN = "Run 'aws configure' or 'aws sso login', or set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
_REFUSED = f"the AWS credentials were refused: {{}}. {_LOG_IN}"
_FORBIDDEN = "permission denied{permission}: {}. The account needs s3:ListBucket, GetObject, PutObject and DeleteObject"
_PERMISSIONS = {
    "HeadObject": "GetObject",
    "ListObjectsV2": "ListBucket",
    "CreateMultipartUpload": "PutObject",
    "UploadPart": "PutObject",
    "CompleteMultipartUpload": "PutObject",
    "CopyObject": "PutObject",
}  # those of operations that are not called like their permission
_EXPLAINED = {
    **dict.fromkeys(MISSING, "no such object or bucket"),
    **dict.fromkeys(("PreconditionFailed", "412"), "changed while it was being read; start again"),
    **dict.fromkeys(("AccessDenied", "403"), _FORBIDDEN),
    **dict.fromkeys(("ExpiredToken", "InvalidAccessKeyId", "SignatureDoesNotMatch"), _REFUSED),
    "NoCredentialsError": f"no AWS credentials were found. {_LOG_IN}",
}


def code_of(error: BaseException) -> str:
    """The server's code of an error; '' if it is not the server's."""
    return str(getattr(error, "response", {}).get("Error", {}).get("Code", ""))


def is_of_network(error: Exception) -> bool:
    """Whether a request got no answer, or only a part of one; another one may."""
    from botocore.exceptions import ConnectionError as NotConnected
    from botocore.exceptions import HTTPClientError

    return isinstance(error, NotConnected | HTTPClientError)


def failure(error: Exception) -> str:
    """What the network did to a single request."""
    if "Timeout" in type(error).__name__:
        return f"nothing arrived for {outage.STALL_SECONDS:g} s"
    return f"the connection could not be made, or was cut ({type(error).__name__})"


def explain(error: Exception) -> str | None:
    """The message of an error of Amazon's client libraries in one line, without secrets; None for any other error."""
    if isinstance(error, outage.GaveUp):
        return str(error)
    if type(error).__module__.split(".")[0] not in ("boto3", "botocore", "s3transfer"):
        return None
    if isinstance(error.__context__, Exception) and code_of(error.__context__):  # of an upload, which wraps it
        error = error.__context__
    operation = str(getattr(error, "operation_name", ""))
    permission = f" (s3:{_PERMISSIONS.get(operation, operation)})" if operation else ""
    message = " ".join(redacted(str(error)).split()).rstrip(".")
    return _EXPLAINED.get(code_of(error) or type(error).__name__, "{}").format(message, permission=permission)
