//! Data for cloud-init within a spec.

use super::*;

#[test]
fn data_within_a_spec_has_at_most_2048_bytes_in_either_form() {
    // Of three bytes, and of two.
    let packed = |more: &str| format!("{}{more}", "eHh4".repeat(682));
    for kind in ["cloudInitNoCloud", "cloudInitConfigDrive"] {
        for (field, what, secret) in [
            ("userData", "userdata", "UserDataSecretRef"),
            ("networkData", "networkdata", "NetworkDataSecretRef"),
        ] {
            let base64 = format!("{field}Base64");
            for (field, fits, too_long) in [
                (field, "x".repeat(2048), "x".repeat(2049)),
                (&base64, packed("eHg="), packed("eHh4")),
            ] {
                let with_data = |data: String| {
                    let volume = json!({"name": "seed", kind: {field: data}});
                    with(&[("/spec/volumes/-", volume)])
                };
                admit(with_data(fits)).unwrap();
                let errors = admit(with_data(too_long)).unwrap_err();
                let words = format!(
                    "{kind} {what} exceeds 2048 byte limit. Should use {secret} for larger data."
                );
                assert!(
                    matches!(&errors[..], [error] if error.contains(&words)),
                    "{errors:?}"
                );
            }
        }
    }
}
