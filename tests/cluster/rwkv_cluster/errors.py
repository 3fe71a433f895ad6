"""Every error that the package raises on purpose; anything else is a defect.

ClusterError
├── MissingTool      a program is not installed; names the Debian package
├── BuildFailed      a Go or C build ended with an error
├── StartFailed      a component ended or did not become ready in time
└── UsageError       the caller asked for something that can't be
"""


class ClusterError(Exception):
    """Base of the tree; its text is one line for the user."""


class MissingTool(ClusterError):
    """A program is not on this machine.

    Args:
        tool: The program that was looked for.
        remedy: What to do, such as `apt-get install runc`.
    """

    def __init__(self, tool: str, remedy: str) -> None:
        super().__init__(f"{tool}: not found on this machine; {remedy}")
        self.tool = tool


class BuildFailed(ClusterError):
    """A compiler ended with an error; the text has its last lines."""


class StartFailed(ClusterError):
    """A component ended early or was not ready in time; the text names its log."""


class UsageError(ClusterError):
    """The request can't be met as asked."""
