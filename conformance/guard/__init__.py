"""Makes reads outside of a file visible: the guards of ``weig conformance run --guard``."""
