//! The pure planner: what was observed and recorded goes in, actions and conditions come out.

#![forbid(unsafe_code)]
