//! The trace that a call belongs to, as its metadata says.

use tonic::metadata::MetadataMap;

use crate::registry::CallerTrace;

/// Longer ones are left out. The W3C has `tracestate` of up to 512 bytes carried on.
const MAX_BYTES: usize = 512;

/// What the caller says of its trace. A caller that says two things says nothing.
pub(super) fn caller_trace(metadata: &MetadataMap) -> CallerTrace {
    let said = |name| {
        metadata
            .get_all(name)
            .iter()
            .filter_map(|value| value.to_str().ok())
    };
    let mut parents = said("traceparent");
    let parent = match (parents.next(), parents.next()) {
        (Some(parent), None) if parent.len() <= MAX_BYTES => parent.to_owned(),
        _ => return CallerTrace::default(),
    };
    // Several of them are one list.
    let state = said("tracestate").collect::<Vec<_>>().join(",");
    let state = if state.len() <= MAX_BYTES {
        state
    } else {
        String::new()
    };
    CallerTrace { parent, state }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(said: &[(&'static str, &str)]) -> CallerTrace {
        let mut metadata = MetadataMap::new();
        for (name, value) in said {
            metadata.append(*name, value.parse().expect("is a value"));
        }
        caller_trace(&metadata)
    }

    #[test]
    fn a_caller_has_one_parent_and_any_number_of_states() {
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let full = of(&[
            ("traceparent", parent),
            ("tracestate", "a=1"),
            ("tracestate", "b=2"),
        ]);
        assert_eq!(
            (full.parent.as_str(), full.state.as_str()),
            (parent, "a=1,b=2")
        );
        assert_eq!(of(&[]), CallerTrace::default());
        assert_eq!(
            of(&[("traceparent", parent), ("traceparent", parent)]),
            CallerTrace::default()
        );
        let long = "x".repeat(MAX_BYTES + 1);
        assert_eq!(of(&[("traceparent", &long)]), CallerTrace::default());
        assert_eq!(
            of(&[("traceparent", parent), ("tracestate", &long)]).state,
            ""
        );
    }
}
