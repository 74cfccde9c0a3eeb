//! The virtio console, its ports, and who listens for their peers.

use std::os::unix::net::UnixListener;
use std::sync::Arc;

use proto_vmm::v1;
use vmm_devices::virtio::console::{
    ConsolePorts, ConsolePortsError, ConsoleSize, ConsoleSpec, HostPort, MAX_NAME_BYTES,
    MAX_NAMED_PORTS, is_name,
};

use super::error::FieldError;
use crate::console::Output;
use crate::descriptors::{Access, Descriptors, Kind};

/// The console of a machine.
pub struct ConsoleParts {
    /// Its ports.
    pub host: Arc<ConsolePorts>,
    /// What the guest prints on the console port.
    pub output: Option<Arc<Output>>,
    /// Sockets for peers of named ports.
    pub listeners: Vec<(Arc<HostPort>, UnixListener)>,
}

/// Reads the one console that there may be.
pub(super) fn parts(
    devices: &[v1::PciDevice],
    descriptors: &mut Descriptors,
) -> Result<Option<ConsoleParts>, FieldError> {
    let mut parts = None;
    for (index, device) in devices.iter().enumerate() {
        let Some(v1::pci_device::Kind::Console(wire)) = &device.kind else {
            continue;
        };
        let path = format!("devices[{index}].console");
        if parts.is_some() {
            return Err(FieldError::new(
                path,
                "is the second console of the machine",
            ));
        }
        parts = Some(console(&path, wire, descriptors)?);
    }
    Ok(parts)
}

fn console(
    path: &str,
    wire: &v1::VirtioConsole,
    descriptors: &mut Descriptors,
) -> Result<ConsoleParts, FieldError> {
    check_ports(path, &wire.ports)?;
    let size = ConsoleSize {
        columns: characters(path, "columns", wire.columns)?,
        rows: characters(path, "rows", wire.rows)?,
    };
    let host_failed =
        |error: &dyn std::error::Error| FieldError::new(path, format!("cannot be made: {error}"));
    let mut output = None;
    let mut spec = None;
    let mut names = Vec::new();
    for port in &wire.ports {
        if port.is_console {
            let ring = Output::new().map_err(|error| host_failed(&error))?;
            spec = Some(ConsoleSpec {
                name: port.name.clone(),
                output: Arc::clone(&ring) as _,
                size,
            });
            output = Some(ring);
        } else {
            names.push(port.name.clone());
        }
    }
    let host = ConsolePorts::new(spec, names).map_err(|error: ConsolePortsError| {
        FieldError::new(format!("{path}.ports"), format!("cannot be made: {error}"))
    })?;
    let listeners = listeners(path, &wire.ports, &host, descriptors)?;
    Ok(ConsoleParts {
        host,
        output,
        listeners,
    })
}

fn check_ports(path: &str, ports: &[v1::VirtioConsolePort]) -> Result<(), FieldError> {
    let named = ports.iter().filter(|port| !port.is_console).count();
    if ports.is_empty() || named > MAX_NAMED_PORTS {
        let rule = format!(
            "has {named} named ports; 1 to {MAX_NAMED_PORTS} are allowed, 0 with a console"
        );
        return Err(FieldError::new(format!("{path}.ports"), rule));
    }
    for (index, port) in ports.iter().enumerate() {
        let field = |name: &str| format!("{path}.ports[{index}].{name}");
        if port.is_console && index > 0 {
            return Err(FieldError::new(
                field("is_console"),
                "is true, but only the first port can be a console",
            ));
        }
        if !(is_name(&port.name) || port.is_console && port.name.is_empty()) {
            let rule = format!(
                "is {:?}; it must be 1 to {MAX_NAME_BYTES} of a-z, A-Z, 0-9, '.', '_' and '-'",
                port.name.chars().take(MAX_NAME_BYTES).collect::<String>()
            );
            return Err(FieldError::new(field("name"), rule));
        }
        if ports
            .iter()
            .take(index)
            .any(|before| before.name == port.name)
        {
            let rule = format!("is {:?}, as that of another port", port.name);
            return Err(FieldError::new(field("name"), rule));
        }
        if port.is_console && port.listen_fd.is_some() {
            let rule = "is set, but clients of a console come by AttachPort";
            return Err(FieldError::new(field("listen_fd"), rule));
        }
    }
    Ok(())
}

fn listeners(
    path: &str,
    ports: &[v1::VirtioConsolePort],
    host: &ConsolePorts,
    descriptors: &mut Descriptors,
) -> Result<Vec<(Arc<HostPort>, UnixListener)>, FieldError> {
    let mut listeners = Vec::new();
    // Named ports have the order of the configuration.
    let mut named = host.named().iter();
    for (index, port) in ports.iter().enumerate() {
        let Some(host_port) = (!port.is_console).then(|| named.next()).flatten() else {
            continue;
        };
        let Some(number) = port.listen_fd else {
            continue;
        };
        let field = format!("{path}.ports[{index}].listen_fd");
        let socket = descriptors.take(&field, number, Kind::Listener, Access::ReadWrite)?;
        let socket = UnixListener::from(socket);
        socket.set_nonblocking(true).map_err(|error| {
            FieldError::new(field, format!("cannot be made non-blocking: {error}"))
        })?;
        listeners.push((Arc::clone(host_port), socket));
    }
    Ok(listeners)
}

fn characters(path: &str, name: &str, wire: u32) -> Result<u16, FieldError> {
    u16::try_from(wire)
        .map_err(|_| FieldError::new(format!("{path}.{name}"), format!("is {wire}, above 65535")))
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn port(name: &str) -> v1::VirtioConsolePort {
        v1::VirtioConsolePort {
            name: name.to_owned(),
            ..v1::VirtioConsolePort::default()
        }
    }

    fn terminal(name: &str) -> v1::VirtioConsolePort {
        v1::VirtioConsolePort {
            is_console: true,
            ..port(name)
        }
    }

    fn device(ports: &[v1::VirtioConsolePort]) -> v1::PciDevice {
        v1::PciDevice {
            kind: Some(v1::pci_device::Kind::Console(v1::VirtioConsole {
                ports: ports.to_vec(),
                ..v1::VirtioConsole::default()
            })),
            ..v1::PciDevice::default()
        }
    }

    fn field_of(devices: &[v1::PciDevice], descriptors: Vec<OwnedFd>) -> String {
        let parts = parts(devices, &mut Descriptors::new(descriptors));
        parts.err().map_or(String::new(), |error| error.field)
    }

    #[test]
    fn ports_are_checked_with_the_path_of_what_is_wrong() {
        let field = |ports: &[_]| field_of(&[device(ports)], Vec::new());
        assert_eq!(field(&[terminal(""), port("a")]), "");
        assert_eq!(field(&[terminal("tty"), port("a")]), "");
        assert_eq!(field(&[]), "devices[0].console.ports");
        let many: Vec<_> = (0..32).map(|n| port(&format!("p{n}"))).collect();
        assert_eq!(field(&many), "devices[0].console.ports");
        assert_eq!(field(&many[1..]), "");
        let second = "devices[0].console.ports[1]";
        assert_eq!(
            field(&[port("a"), terminal("")]),
            format!("{second}.is_console")
        );
        for name in ["", "a", "a/b", "x\0"] {
            assert_eq!(field(&[port("a"), port(name)]), format!("{second}.name"));
        }
        let two = [device(&[port("a")]), device(&[port("b")])];
        assert_eq!(field_of(&two, Vec::new()), "devices[1].console");
    }

    #[test]
    fn only_listening_sockets_listen() {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("socket")).unwrap();
        let (stream, _) = UnixStream::pair().unwrap();
        let file = tempfile::tempfile().unwrap();
        let listens = |ports: &[v1::VirtioConsolePort], descriptor: OwnedFd| {
            let mut ports = ports.to_vec();
            for port in &mut ports {
                port.listen_fd = Some(0);
            }
            field_of(&[device(&ports)], vec![descriptor])
        };
        let wrong = "devices[0].console.ports[0].listen_fd";
        assert_eq!(listens(&[port("a")], stream.into()), wrong);
        assert_eq!(listens(&[port("a")], file.into()), wrong);
        let copy = listener.try_clone().unwrap();
        assert_eq!(listens(&[terminal("")], copy.into()), wrong);
        assert_eq!(listens(&[port("a")], listener.into()), "");
    }
}
