//! What a VMI means once it has been admitted: newtypes, defaults, admission and conditions.

#![forbid(unsafe_code)]
