dist_noinst_SCRIPTS += tests/count_results.py tests/real/sglang_cpu.py tests/real/systemd_root.py
EXTRA_DIST += tests/real/gpu_check.py tests/real/cache_folder.py tests/real/kldump_cpu_stubs.py tests/real/planted/sitecustomize.py
