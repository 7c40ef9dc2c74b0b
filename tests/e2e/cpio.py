"""Archives in the form that Linux unpacks as its first root file system (cpio, "newc").

Several one after the other are one archive; of two entries with the same name the later one holds.
"""

import os
import stat


class Archive:
    """Entries in memory; `end()` gives the bytes."""

    def __init__(self):
        self._parts = []
        self._directories = set()
        self._names = set()

    def _entry(self, name, mode, data=b"", changed=0):
        raw = name.encode() + b"\0"
        # inode, mode, owner, group, links, time, size, device, device it is of, length of the name, checksum
        numbers = [len(self._parts) + 1, mode, 0, 0, 1, changed, len(data), 0, 0, 0, 0, len(raw), 0]
        head = b"070701" + b"".join(b"%08x" % number for number in numbers) + raw
        self._parts += [head, b"\0" * (-len(head) % 4), data, b"\0" * (-len(data) % 4)]

    def directory(self, name):
        """A directory, and those above it."""
        if name and name not in self._directories:
            self.directory(os.path.dirname(name))
            self._directories.add(name)
            self._entry(name, stat.S_IFDIR | 0o755)

    def link(self, name, target):
        """A symbolic link."""
        self.directory(os.path.dirname(name))
        self._entry(name, stat.S_IFLNK | 0o777, target.encode())

    def data(self, name, data, mode=0o755, changed=0):
        """A file with these bytes, changed at that second."""
        self.directory(os.path.dirname(name))
        self._entry(name, stat.S_IFREG | mode, data, changed)

    def file(self, name, source):
        """A copy of a file, unless one of that name is there."""
        if name not in self._names:
            self._names.add(name)
            with open(source, "rb") as file:
                found = os.stat(file.fileno())
                # Python goes by the time: what it has compiled must be as old as it was.
                self.data(name, file.read(), stat.S_IMODE(found.st_mode), int(found.st_mtime))

    def tree(self, name, source, wanted=lambda path: True):
        """All files below a directory whose path is wanted."""
        for where, _below, files in os.walk(source):
            inner = os.path.relpath(where, source)
            for one in sorted(files):
                path = os.path.join(where, one)
                if os.path.isfile(path) and wanted(path):
                    self.file(os.path.normpath(os.path.join(name, inner, one)), path)

    def end(self):
        """The whole archive."""
        self._entry("TRAILER!!!", 0)
        return b"".join(self._parts)


__all__ = ["Archive"]
