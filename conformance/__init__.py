"""Runs any loader, in any language, over the cases of a manifest and judges what it says.

Nothing here knows a loader or a field of the format: cases come from a manifest, answers from a
process (PROTOCOL.md). The only modules of weig imported here are those of this folder.
"""
