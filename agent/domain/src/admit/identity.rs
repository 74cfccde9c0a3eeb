//! What the guest finds in SMBIOS.

use proto_machine::smbios::{ChassisInfo, SmbiosConfig, SystemInfo, check_text};
use proto_node::vmi::DomainSpec;

use super::review::Review;

const UUID: &str = "spec.domain.firmware.uuid";

/// Who made every guest's machine and chassis, by default, and of which family it is; and what the machine is
/// called. As KubeVirt has it.
const MAKER: &str = "KubeVirt";
const PRODUCT: &str = "None";

/// Reads what identifies the machine. It has no board.
pub(super) fn judge(domain: &DomainSpec, review: &mut Review<'_>) -> SmbiosConfig {
    let firmware = domain.firmware.clone().unwrap_or_default();
    let uuid = parse_uuid(&firmware.uuid);
    if uuid.is_none() {
        review.unable(
            UUID,
            &firmware.uuid,
            "must be a UUID, such as 5d307ca9-b3ef-428c-8861-06e72d69f223",
        );
    }
    let mut text = |field: &str, value: &str| {
        legal_text(&format!("spec.domain.{field}"), value, review);
        value.to_owned()
    };
    let serial = text("firmware.serial", &firmware.serial);
    let chassis = domain.chassis.clone().unwrap_or_default();
    let manufacturer = text("chassis.manufacturer", &chassis.manufacturer);
    SmbiosConfig {
        system: SystemInfo {
            manufacturer: MAKER.to_owned(),
            product: PRODUCT.to_owned(),
            serial,
            uuid: uuid.unwrap_or_default(),
            family: MAKER.to_owned(),
            ..SystemInfo::default()
        },
        chassis: ChassisInfo {
            manufacturer: if manufacturer.is_empty() {
                MAKER.to_owned()
            } else {
                manufacturer
            },
            version: text("chassis.version", &chassis.version),
            serial: text("chassis.serial", &chassis.serial),
            asset: text("chassis.asset", &chassis.asset),
            sku: text("chassis.sku", &chassis.sku),
        },
        ..SmbiosConfig::default()
    }
}

/// Refuses a text that SMBIOS has no room for.
pub(super) fn legal_text(field: &str, value: &str, review: &mut Review<'_>) {
    if let Err(broken) = check_text(value) {
        review.invalid(field, value, broken.to_string());
    }
}

/// 32 hexadecimal digits, 8-4-4-4-12.
fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let is_hyphen = |index| matches!(index, 8 | 13 | 18 | 23);
    let shape = |(index, byte): (usize, u8)| {
        if is_hyphen(index) {
            byte == b'-'
        } else {
            byte.is_ascii_hexdigit()
        }
    };
    if text.len() != 36 || !text.bytes().enumerate().all(shape) {
        return None;
    }
    let number = u128::from_str_radix(&text.replace('-', ""), 16).ok()?;
    Some(number.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_read_in_the_order_in_which_it_is_written() {
        let uuid = parse_uuid("00112233-4455-6677-8899-aAbBcCdDeEfF").unwrap();
        assert_eq!(uuid[..4], [0, 0x11, 0x22, 0x33]);
        assert_eq!(uuid[15], 0xff);
        let wrong = [
            "",
            "00112233-4455-6677-8899-aabbccddeef",
            "00112233-4455-6677-8899-aabbccddeefg",
            "001122334455-6677-8899-aabbccddeeff00",
            "+0112233-4455-6677-8899-aabbccddeeff",
        ];
        for text in wrong {
            assert_eq!(parse_uuid(text), None, "{text}");
        }
    }
}
