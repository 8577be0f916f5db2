"""Settings that every test runs under: 8 fake CPU devices, and no silent broadcasting."""

import atexit
import shutil
import tempfile

import jax

jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_default_matmul_precision", "highest")

# Compiling is what costs: a program that several tests use is compiled once.
_cache = tempfile.mkdtemp(prefix="jaxformer-tests-")
atexit.register(shutil.rmtree, _cache, ignore_errors=True)
jax.config.update("jax_compilation_cache_dir", _cache)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
