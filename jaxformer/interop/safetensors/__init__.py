"""Safetensors files: read strictly without loading them, and written tensor by tensor."""
