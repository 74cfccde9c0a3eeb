//! What a file says, and what is wrong with it.

use std::path::PathBuf;

use super::sections::Paths;
use super::*;

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(Path::new("/etc/kvmlet/kvmlet.toml"), text).map_err(|error| error.to_string())
}

#[test]
fn an_empty_file_is_the_defaults() {
    let config = parse("").expect("is fine");
    assert_eq!(config.socket, Path::new("/run/kvmlet/kvmlet.sock"));
    assert!(config.kernel.unpack);
}

#[test]
fn the_shipped_file_is_fine_and_says_the_defaults() {
    let config = parse(include_str!("../../../../systemd/kvmlet.toml")).expect("is fine");
    assert_eq!(config.paths.disk_roots(), Paths::default().disk_roots());
    assert_eq!(config.paths.boot_roots(), Paths::default().boot_roots());
}

#[test]
fn routes_of_guests_are_networks_and_one_that_is_none_is_named() {
    let config = parse("[pod_network]\nroutes = [\"10.214.0.0/16\", \"fd00:1::/64\"]");
    let routes = config.expect("is fine").pod_network.routes();
    let bits: Vec<u8> = routes.iter().flatten().map(|(_, bits)| *bits).collect();
    assert_eq!(bits, [16, 64]);
    let error = parse("[pod_network]\nroutes = [\"192.0.2.0/24\", \"10.214.0.1/16\"]");
    let error = error.expect_err("has bits of a host");
    let words = "pod_network.routes = \"10.214.0.1/16\" must be a network such as 10.214.0.0/16";
    assert!(error.contains(words), "{error}");
    // The node's own pool as it is by default.
    let error = parse("[pod_network]\nroutes = [\"10.213.4.0/24\"]").expect_err("is the pool's");
    assert!(error.contains("name the pools of other nodes"), "{error}");
}

#[test]
fn networks_name_their_bridges() {
    let config = parse("[networks.lan]\nbridge = \"br0\"").expect("is fine");
    assert_eq!(config.networks["lan"].bridge, "br0");
    assert!(config.networks["lan"].walls_off_for.is_empty());
    let open = "[networks.lan]\nbridge = \"br0\"\nwalls_off_for = ";
    let config = parse(&format!("{open}[\"infra\"]")).expect("is fine");
    assert_eq!(config.networks["lan"].walls_off_for, ["infra"]);
    let error = parse(&format!("{open}[\"*\", \"infra\"]")).expect_err("all, and one of them");
    assert!(error.contains("networks.lan.walls_off_for"), "{error}");
    let named = "[networks.lan]\nbridge = \"br0\"\naddresses.";
    let config = parse(&format!(
        "{named}\"default/web\" = [\"192.0.2.7\", \"fe80::7\"]"
    ))
    .expect("is fine");
    assert_eq!(config.networks["lan"].addresses["default/web"].len(), 2);
    for wrong in [
        "web = [\"192.0.2.7\"]",
        "\"default/web\" = []",
        "\"default/web\" = [\"192.0.2.7\", \"224.0.0.1\"]",
    ] {
        let error = parse(&format!("{named}{wrong}")).expect_err(wrong);
        assert!(error.contains("networks.lan.addresses"), "{error}");
    }
    let error = parse("[networks.lan]\nbridge = \"\"").expect_err("an empty name");
    assert!(error.contains("networks.lan.bridge"), "{error}");
}

#[test]
fn unknown_keys_and_wrong_types_are_named_with_their_line() {
    for (text, name) in [
        ("sockett = \"/x\"", "sockett"),
        ("[kernel]\nunpack = 3", "unpack"),
    ] {
        let error = parse(text).expect_err("wrong");
        assert!(error.contains(name) && error.contains("line"), "{error}");
    }
}

#[test]
fn images_leave_room_by_two_marks_and_a_reserve() {
    let limits = |text: &str| parse(text).expect("is fine").images.limits();
    let default = limits("");
    assert_eq!((default.high_percent, default.low_percent), (85, 80));
    assert_eq!(default.reserve_bytes, None);
    let set = limits("[images]\nhigh_percent = 60\nlow_percent = 60\nreserve_bytes = 7");
    assert_eq!((set.high_percent, set.reserve_bytes), (60, Some(7)));
    for (text, name) in [
        ("[images]\nhigh_percent = 101", "images.high_percent"),
        ("[images]\nhigh_percent = 79", "images.low_percent"),
    ] {
        let error = parse(text).expect_err(name);
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn firmware_is_named_by_absolute_paths_and_uefi_by_two() {
    let config = parse("[firmware]\nbios = \"/srv/bios.bin\"").expect("is fine");
    assert_eq!(
        config.firmware.bios.as_deref(),
        Some(Path::new("/srv/bios.bin"))
    );
    for (text, name) in [
        ("[firmware]\nbios = \"bios.bin\"", "firmware.bios"),
        ("[firmware]\nefi = \"/code.fd\"", "firmware.efi_variables"),
        ("[firmware]\nefi_variables = \"/vars.fd\"", "firmware.efi,"),
    ] {
        let error = parse(text).expect_err("wrong");
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn metrics_are_nowhere_unless_an_address_is_given() {
    assert_eq!(parse("").expect("is fine").metrics.listen, None);
    let config = parse("[metrics]\nlisten = \"[::1]:9090\"").expect("is fine");
    assert_eq!(config.metrics.listen, "[::1]:9090".parse().ok());
    let error = parse("[metrics]\nlisten = \"9090\"").expect_err("no address");
    assert!(
        error.contains("listen") && error.contains("line 2"),
        "{error}"
    );
}

#[test]
fn what_cannot_change_while_the_agent_runs_is_kept_and_named() {
    let present = parse("").expect("is fine");
    let mut next = parse(
        "node_name = \"other\"\ndevice_substitution = \"Refuse\"\n[metrics]\nlisten = \"127.0.0.1:1\"\n\
         [networks.lan]\nbridge = \"br0\"",
    )
    .expect("is fine");
    assert_eq!(next.keep_fixed(&present), ["node_name", "metrics.listen"]);
    assert_eq!((next.node_name.as_str(), next.metrics.listen), ("", None));
    assert_eq!(next.device_substitution, DeviceSubstitution::Refuse);
    assert_eq!(next.networks["lan"].bridge, "br0");
    assert!(next.keep_fixed(&present).is_empty());
}

#[test]
fn a_level_that_is_none_is_refused() {
    let error = parse("[log]\nlevel = \"agent_host=loud\"").expect_err("no level");
    assert!(error.contains("log.level"), "{error}");
}

#[test]
fn vmms_are_never_run_as_root_or_as_nobody_at_all() {
    for base in [0_u32, 65535, 4_294_901_760, u32::MAX] {
        let error = parse(&format!("[vmm]\nuser_base = {base}")).expect_err("out of range");
        let (least, most) = (USER_BASES.start(), USER_BASES.end());
        let rule = format!("must be {least} to {most}");
        assert!(
            error.contains("vmm.user_base") && error.contains(&rule),
            "{error}"
        );
    }
    for base in [65536_u32, 1_000_000, 4_294_901_759] {
        parse(&format!("[vmm]\nuser_base = {base}")).expect("in range");
    }
}

#[test]
fn relative_paths_are_refused_by_name() {
    let error = parse("[paths]\nallowed = [\"images\"]").expect_err("relative");
    assert!(
        error.contains("paths.allowed") && error.contains("absolute"),
        "{error}"
    );
}

#[test]
fn directories_for_disks_and_boot_files_are_apart_and_the_older_setting_is_for_both() {
    let roots = |text: &str| {
        let paths = parse(&format!("[paths]\n{text}")).expect("is fine").paths;
        let texts = |roots: Vec<PathBuf>| {
            let texts = roots.iter().map(|root| root.display().to_string());
            texts.collect::<Vec<_>>().join(" ")
        };
        (texts(paths.disk_roots()), texts(paths.boot_roots()))
    };
    let both = |disks: &str, boot: &str| (disks.to_owned(), boot.to_owned());
    let (disks, boot) = ("/var/lib/kvmlet/disks", "/var/lib/kvmlet/images");
    assert_eq!(roots(""), both(disks, boot));
    assert_eq!(roots("allowed = [\"/srv\"]"), both("/srv", "/srv"));
    assert_eq!(roots("disks = [\"/srv\"]"), both("/srv", boot));
    assert_eq!(
        roots("boot = [\"/b\"]\nallowed = [\"/srv\"]"),
        both("/srv", "/b /srv")
    );
}

#[test]
fn a_path_is_granted_to_namespaces_by_name_or_to_all_of_them() {
    let parse_one = |path: &str, namespaces: &str| {
        parse(&format!(
            "[[paths.grants]]\npath = \"{path}\"\nnamespaces = [{namespaces}]"
        ))
    };
    for namespaces in ["\"a\", \"b\"", "\"*\""] {
        parse_one("/srv", namespaces).expect("is fine");
    }
    for (path, namespaces, name) in [
        ("srv", "\"a\"", "paths.grants[0].path"),
        ("/srv", "", "paths.grants[0].namespaces"),
        ("/srv", "\"*\", \"a\"", "paths.grants[0].namespaces"),
        ("/srv", "\"A b\"", "paths.grants[0].namespaces"),
    ] {
        let error = parse_one(path, namespaces).expect_err("wrong");
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn room_is_shared_out_within_reason() {
    let text = "[capacity]\nmemory_overcommit_percent = 150\ndedicated_cpus = \"2-3,5\"";
    let rules = parse(text).expect("is fine");
    let rules = rules.capacity.rules();
    assert_eq!(rules.dedicated_cpus.to_string(), "2-3,5");
    assert_eq!(
        (rules.memory_overcommit_percent, rules.cpu_allocation_ratio),
        (150, 10)
    );
    for (text, name) in [
        ("memory_overcommit_percent = 0", "memory_overcommit_percent"),
        ("cpu_allocation_ratio = 0", "cpu_allocation_ratio = \"0\""),
        ("reserved_memory_bytes = -1", "reserved_memory_bytes"),
        ("dedicated_cpus = \"5-2\"", "must be a list of CPUs"),
    ] {
        let error = parse(&format!("[capacity]\n{text}")).expect_err("wrong");
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn the_node_waits_for_its_guests_within_bounds() {
    let longest = |text: &str| parse(text).map(|config| config.shutdown.longest_grace().as_secs());
    assert_eq!(longest(""), Ok(120));
    let none = "[shutdown]\nlongest_grace_seconds = 0";
    assert_eq!(longest(none), Ok(0));
    let error = longest("[shutdown]\nlongest_grace_seconds = 1201").expect_err("too long");
    assert!(error.contains("shutdown.longest_grace_seconds"), "{error}");
}

#[test]
fn a_registry_has_time_within_bounds() {
    let text = "[registries.\"*\"]\ntimeout_seconds = 300\n\
                [registries.\"far.example\"]\ntimeout_seconds = 1\npull_timeout_seconds = 86400\n";
    let registries = parse(text).expect("is fine").registries;
    let far = registries.get("far.example").expect("is there");
    assert_eq!(far.timeout_seconds, Some(1));
    assert_eq!(far.pull_timeout_seconds, Some(86400));
    for (key, values, rule) in [
        ("timeout_seconds", [0, 301], "must be 1 to 300"),
        ("pull_timeout_seconds", [9, 86401], "must be 10 to 86400"),
    ] {
        for value in values {
            let text = format!("[registries.\"a.example\"]\n{key} = {value}\n");
            let refused = parse(&text).expect_err("is wrong");
            let setting = format!("registries.\"a.example\".{key} = \"{value}\"");
            for words in [&setting[..], rule] {
                assert!(refused.contains(words), "{refused}");
            }
        }
    }
}

#[test]
fn a_proxy_of_registries_is_a_host_with_a_port_and_shows_no_password() {
    let text = "[registries.\"*\"]\nproxy = \"http://proxy.example:3128\"\n\
                [registries.\"near.example:5000\"]\nproxy = \"none\"\ninsecure = true\n";
    parse(text).expect("is fine");
    for (text, words) in [
        (
            "[registries.\"*\"]\nproxy = \"http://u:secret@proxy.example:3128\"\n",
            "registries.\"*\".proxy",
        ),
        (
            "[registries.\"a.example\"]\nproxy = \"proxy.example\"\n",
            "must be http://HOST:PORT",
        ),
        (
            "[registries.\"*\"]\ninsecure = true\n",
            "takes proxy, timeout_seconds and pull_timeout_seconds alone",
        ),
    ] {
        let refused = parse(text).expect_err("is wrong");
        assert!(refused.contains(words), "{refused}");
        assert!(!refused.contains("secret"), "{refused}");
    }
}

#[test]
fn names_mirrors_and_authorities_of_registries_are_ones_that_are_used() {
    parse(
        "[registries.\"localhost:5000\"]\nca = \"/etc/ca.pem\"\n\
         mirrors = [\"m.example\", \"m.example:5000/docker/cache\", \"[fd00::1]:5000/x\"]\n",
    )
    .expect("is fine");
    for name in [
        "https://r.example",
        "r.example/ns",
        "a b",
        "",
        "r.example:0",
    ] {
        let text = format!("[registries.{name:?}]\ninsecure = true\n");
        let refused = parse(&text).expect_err("names no registry");
        let setting = format!("registries.{name:?} = {name:?}");
        assert!(refused.contains(&setting), "{refused}");
        assert!(refused.contains("must be \"*\", or the HOST"), "{refused}");
    }
    for mirror in ["https://m.example/x", "", "m.example/", "m.example/A", "/x"] {
        let text = format!("[registries.\"r.example\"]\nmirrors = [\"a.example\", {mirror:?}]\n");
        let refused = parse(&text).expect_err("names no mirror");
        let words = format!("registries.\"r.example\".mirrors = {mirror:?}");
        assert!(refused.contains(&words), "{refused}");
    }
    let refused = parse("[registries.\"r.example\"]\nca = \"ca.pem\"\n").expect_err("of where?");
    for words in ["registries.\"r.example\".ca", "must be an absolute path"] {
        assert!(refused.contains(words), "{refused}");
    }
}
