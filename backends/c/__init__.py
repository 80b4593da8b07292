"""The loader in C (weig.h) and its binding through cffi."""
