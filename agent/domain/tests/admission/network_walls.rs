//! The annotation by which a VMI asks for no walls.

use agent_domain::{NETWORK_WALLS_ANNOTATION, Vmi};
use serde_json::json;

use super::{admit, with};

fn admitted(value: &str) -> Result<Vmi, Vec<String>> {
    let mut annotations = json!({});
    annotations[NETWORK_WALLS_ANNOTATION] = json!(value);
    admit(with(&[("/metadata/annotations", annotations)])).map(|admitted| admitted.vmi)
}

#[test]
fn a_vmi_asks_for_no_walls_by_a_word_and_any_other_is_refused() {
    assert!(admitted("off").unwrap().without_walls);
    assert!(!admitted("on").unwrap().without_walls);
    assert!(!admit(with(&[])).unwrap().vmi.without_walls);
    for word in ["", "Off", "false"] {
        let errors = admitted(word).unwrap_err().join(" ");
        assert!(
            errors.contains(NETWORK_WALLS_ANNOTATION) && errors.contains("on or off"),
            "{errors}"
        );
    }
}
