//! The test harness: nodes in a box, guests, and what is proved in them.

#![forbid(unsafe_code)]
