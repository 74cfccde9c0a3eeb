//! Guest memory: memfds, regions, layout.
