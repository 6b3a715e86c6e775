#!/usr/bin/env python3
"""Fails if a file of src/ includes a room that tools/arrows.txt does not allow it."""
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parent.parent
allowed = {}
for line in (root / "tools/arrows.txt").read_text().splitlines():
    if line and not line.startswith("#"):
        room, _, others = line.partition(":")
        allowed[room.strip()] = {room.strip(), *others.split()}

bad = []
for path in sorted(p for p in (root / "src").rglob("*") if p.suffix in {".h", ".cpp", ".cu", ".cuh"}):
    room = path.relative_to(root / "src").parts[0]
    for number, text in enumerate(path.read_text().splitlines(), 1):
        found = re.match(r'#include "([^"/]+)/', text)
        if found and found[1] not in allowed.get(room, set()):
            bad.append(f"{path.relative_to(root)}:{number}: {room} may not include {found[1]}")
print("\n".join(bad) or f"arrows: {len(allowed)} rooms, all includes allowed")
sys.exit(bool(bad))
