"""Settings, errors and warnings, frozen dataclasses, disk cache, memory pools and allocators, profiles and traces,
progress bars, forks, boxes: imports nothing of ours.

In reading order: frozen, errors, readable_text, settings, disk_cache, cache_contents, allocators, recycling, host_pool,
gc_pause, deferred_fork, progress, profile, perfetto, box_index.
"""
