//! Combinations of flags: values that fit, now and then one that does not.

use integration::sim::Random;

/// A flag with values that are taken and values that are refused.
struct Flag {
    name: &'static str,
    good: &'static [&'static str],
    bad: &'static [&'static str],
    /// How often it may be given.
    most: u64,
}

const fn flag(
    name: &'static str,
    most: u64,
    good: &'static [&'static str],
    bad: &'static [&'static str],
) -> Flag {
    Flag {
        name,
        good,
        bad,
        most,
    }
}

/// Refused by every flag that has parameters.
const ODD_PARAMS: [&str; 6] = [
    "",
    "web",
    "src:web,colour:red",
    "src:,name:a",
    "src:web,bootorder:x",
    "src:web,bootorder:-1",
];

const KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDUwJwVYb8Dq3j8cTk5yqZ9Yd0nYb5x5c0m5Jq3h3c4X me@home";

const VM: [Flag; 17] = [
    flag("name", 1, &["web", "dev", "db-1"], &[]),
    flag(
        "run-strategy",
        1,
        &["Always", "manual", "HALTED", "Once", "RerunOnFailure"],
        &["", "Sometimes"],
    ),
    flag(
        "termination-grace-period",
        1,
        &["0", "60", "180"],
        &["", "1m", "99999999999999999999"],
    ),
    flag(
        "volume-containerdisk",
        2,
        &[
            "src:registry.example/debian:12",
            "src:registry.example/tools:1,name:tools",
            "src:registry.example/debian@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08,bootorder:1",
            "src:localhost:5000/a/b:c,name:root,bootorder:2",
        ],
        &[
            "src:x,name:My_Disk",
            "name:a",
            "src:x,bootorder:0",
            "src:x,name:a.b",
            "src:x,bootorder:4294967296",
        ],
    ),
    flag(
        "volume-pvc",
        2,
        &[
            "src:data",
            "src:data,name:second",
            "src:boot,bootorder:1",
            "src:boot,name:third,bootorder:7",
        ],
        &["src:ns/data", "src:a/b/c", "src:ns/", "src:my.claim"],
    ),
    flag(
        "volume-datasource",
        2,
        &[
            "src:golden",
            "src:images/golden,name:golden-1",
            "src:golden,size:20Gi,name:golden-2,bootorder:3",
        ],
        &["src:a/b/c", "size:1Gi", "src:golden,size:big"],
    ),
    flag(
        "volume-clone-pvc",
        2,
        &[
            "src:images/base",
            "src:images/base,name:copy,size:1536Mi",
            "src:images/base,name:copy-2,bootorder:4",
        ],
        &["src:base", "src:images/base,size:1Q"],
    ),
    flag(
        "volume-blank",
        2,
        &[
            "size:10Gi",
            "size:10G,name:scratch",
            "size:0.5Gi,name:scratch-2,bootorder:5",
        ],
        &["name:scratch", "size:", "size:1Gi,url:x"],
    ),
    flag(
        "volume-import",
        3,
        &[
            "type:blank,size:2048Mi",
            "type:blank,size:1e9,name:e",
            "type:gcs,url:gs://b/o,size:5Gi,name:gcs",
            "type:gcs,url:gs://b/o,secretref:s,size:5Gi",
            "type:http,url:https://x.example/d.qcow2,size:3Gi,name:http",
            "type:http,url:http://x/d,size:3Gi,extraheaders:a;b,secretextraheaders:c,certconfigmap:m,secretref:s",
            "type:imageio,url:https://ovirt/api,diskid:1,secretref:s,certconfigmap:m,size:4Gi,name:imageio",
            "type:pvc,src:images/base,name:claim",
            "type:pvc,src:images/base,size:100M,bootorder:2",
            "type:registry,url:docker://registry.example/debian:12,size:8Gi,name:registry",
            "type:registry,imagestream:debian,pullmethod:node,certconfigmap:m,secretref:s,size:8Gi,bootorder:6",
            "type:s3,url:s3://b/o,secretref:s,certconfigmap:m,size:5Gi,name:s3",
            "type:vddk,url:https://v,uuid:u,thumbprint:t,secretref:s,backingfile:b,size:9Gi,name:vddk",
            "type:vddk,url:https://v,uuid:u,thumbprint:t,secretref:s,backingfile:b,initimageurl:i,size:9Gi",
            "type:snapshot,src:images/snap,name:snap",
            "type:ds,src:golden,name:ds",
            "type:ds,src:images/golden,bootorder:1",
        ],
        &[
            "src:x",
            "type:floppy,size:1Gi",
            "type:blank",
            "type:gcs,size:1Gi",
            "type:gcs,url:x",
            "type:http,size:1Gi",
            "type:imageio,url:x,size:1Gi",
            "type:pvc,src:base",
            "type:snapshot,src:",
            "type:registry,size:1Gi",
            "type:registry,url:a,imagestream:b,size:1Gi",
            "type:registry,url:a,pullmethod:push,size:1Gi",
            "type:s3,size:1Gi",
            "type:vddk,url:u,size:1Gi",
            "type:vddk,url:u,uuid:u,size:1Gi",
            "type:vddk,url:u,uuid:u,thumbprint:t,size:1Gi",
            "type:vddk,url:u,uuid:u,thumbprint:t,secretref:s,size:1Gi",
            "type:ds,src:a/b/c",
            "type:ds",
            "type:blank,size:1Gi,name:UPPER",
            "type:blank,size:1GiB",
        ],
    ),
    flag(
        "volume-sysprep",
        1,
        &[
            "src:answers",
            "src:answers,type:configmap",
            "src:answers,type:Secret",
        ],
        &["src:ns/answers", "src:answers,type:disk", "type:secret"],
    ),
    flag("user", 1, &["debian", "cloud-user"], &[]),
    flag("password-file", 1, &["password", "blank"], &["missing"]),
    flag(
        "ssh-key",
        2,
        &[
            KEY,
            "ssh-rsa AAAA a@b,ssh-rsa BBBB c@d",
            "\"command=\"\"ls\"\" ssh-rsa CCCC\"",
        ],
        &["command=\"ls\" ssh-rsa CCCC", "\"ssh-rsa"],
    ),
    flag("ga-manage-ssh", 1, &["true", "false"], &["maybe"]),
    flag(
        "access-cred",
        2,
        &[
            "type:ssh,src:keys,user:admin",
            "src:keys",
            "type:ssh,src:keys,method:nocloud",
            "type:SSH,src:keys,method:ConfigDrive",
            "type:password,src:passwords",
            "type:password,src:passwords,method:GA",
        ],
        &[
            "type:ssh,src:ns/keys",
            "type:fingerprint,src:keys",
            "type:ssh,src:keys,method:carrier-pigeon",
            "type:ssh,src:keys,method:nocloud,user:a",
            "type:password,src:p,method:nocloud",
            "type:password,src:p,user:a",
        ],
    ),
    flag(
        "cloud-init",
        1,
        &["nocloud", "ConfigDrive", "none"],
        &["floppy"],
    ),
    flag("cloud-init-network-data", 1, &["dmVyc2lvbjogMgo="], &[]),
];

/// Of these a machine mostly has one.
const SIZE: [Flag; 4] = [
    flag(
        "memory",
        1,
        &["512Mi", "1Gi", "2048Mi", "1500M", "1.5Gi", "1e9"],
        &["", "lots", "1GiB", "1gi", "1.5.5"],
    ),
    flag(
        "instancetype",
        1,
        &[
            "u1.small",
            "u1.nano",
            "virtualmachineclusterinstancetype/u1.medium",
            "VirtualMachineInstancetype/own",
        ],
        &["", "pod/u1.small", "a/b/c", "virtualmachineinstancetype/"],
    ),
    flag(
        "infer-instancetype",
        1,
        &["true", "false", "1", "F"],
        &["perhaps"],
    ),
    flag(
        "infer-instancetype-from",
        1,
        &["data", "claim", "golden-1", "tools"],
        &["nowhere"],
    ),
];

/// Of these it mostly has one or none.
const TASTE: [Flag; 3] = [
    flag(
        "preference",
        1,
        &[
            "debian",
            "linux.efi",
            "virtualmachineclusterpreference/debian",
            "VirtualMachinePreference/own",
        ],
        &["", "pod/debian", "a/b/c"],
    ),
    flag("infer-preference", 1, &["true", "false"], &["perhaps"]),
    flag(
        "infer-preference-from",
        1,
        &["data", "claim", "root", "golden-1"],
        &["nowhere"],
    ),
];

/// Goes with few of the others.
const USER_DATA: Flag = flag(
    "cloud-init-user-data",
    1,
    &["I2Nsb3VkLWNvbmZpZwp1c2VyOiBkZWJpYW4K"],
    &[],
);

/// Volumes that flags name which infer something.
const NAMED: [Flag; 3] = [
    flag(
        "volume-pvc",
        1,
        &["src:data", "src:x,name:root,bootorder:9", "src:claim"],
        &[],
    ),
    flag(
        "volume-import",
        1,
        &[
            "type:pvc,src:images/base,name:claim",
            "type:ds,src:golden,name:golden-1",
            "type:http,url:http://x/d,size:3Gi,name:data",
        ],
        &[],
    ),
    flag(
        "volume-containerdisk",
        1,
        &["src:registry.example/tools:1,name:tools"],
        &[],
    ),
];

const INSTANCETYPE: [Flag; 6] = [
    flag("name", 1, &["small"], &[]),
    flag(
        "memory",
        1,
        &["256Mi", "1024Mi", "1G", "1.5Gi"],
        &["", "lots", "1GiB"],
    ),
    flag(
        "gpu",
        2,
        &[
            "name:gpu1,devicename:nvidia.example/a",
            "name:gpu2,devicename:nvidia.example/b",
        ],
        &["name:a", "devicename:b", "", "name:a,devicename:b,x:y"],
    ),
    flag(
        "hostdevice",
        2,
        &["name:nic,devicename:intel.example/vf"],
        &["name:a", "devicename:b", "a"],
    ),
    flag("iothreadspolicy", 1, &["auto", "shared"], &["own", ""]),
    flag("namespaced", 1, &["true", "false"], &["no"]),
];

const PREFERENCE: [Flag; 5] = [
    flag("name", 1, &["own"], &[]),
    flag(
        "cpu-topology",
        1,
        &[
            "sockets",
            "cores",
            "threads",
            "spread",
            "any",
            "preferCores",
        ],
        &["", "dies"],
    ),
    flag("machine-type", 1, &["q35", "pc-q35-9.2"], &[]),
    flag("volume-storage-class", 1, &["local", "fast"], &[]),
    flag("namespaced", 1, &["true", "t", "0"], &["no"]),
];

/// The next combination.
pub(super) fn next(random: &mut Random) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    if random.below(8) == 0 {
        words.push("--namespace=team-a".to_owned());
    }
    words.push("create".to_owned());
    let is_odd = random.below(4) == 0;
    match random.below(12) {
        0 => {
            words.push("instancetype".to_owned());
            let cpu = if random.below(12) == 0 {
                pick(random, &["0", "-1", "many", "4294967296"])
            } else {
                pick(random, &["1", "2", "16"])
            };
            // A required flag is left out now and then.
            if random.below(12) > 0 {
                words.push(format!("--cpu={cpu}"));
            }
            add(random, &mut words, &INSTANCETYPE[1]);
            fill(random, &mut words, &INSTANCETYPE, is_odd);
        }
        1 => {
            words.push("preference".to_owned());
            fill(random, &mut words, &PREFERENCE, is_odd);
        }
        _ => {
            words.push("vm".to_owned());
            machine(random, &mut words, is_odd);
        }
    }
    words
}

/// Flags of a machine.
fn machine(random: &mut Random, words: &mut Vec<String>, is_odd: bool) {
    if random.below(8) > 0 {
        let size = &SIZE[index(random, SIZE.len())];
        add(random, words, size);
    }
    if random.below(2) == 0 {
        let taste = &TASTE[index(random, TASTE.len())];
        add(random, words, taste);
    }
    if words.iter().any(|word| word.contains("-from=")) {
        let named = &NAMED[index(random, NAMED.len())];
        add(random, words, named);
    }
    let is_odd_size = is_odd && random.below(4) == 0;
    fill(random, words, &VM, is_odd && !is_odd_size);
    if is_odd_size {
        let all: Vec<&Flag> = SIZE.iter().chain(&TASTE).collect();
        words.retain(|word| !all.iter().any(|flag| is_of(word, flag)));
        let flag = all[index(random, all.len())];
        words.push(format!("--{}={}", flag.name, pick(random, flag.bad)));
    }
    if random.below(20) == 0 {
        let all: Vec<&Flag> = SIZE.iter().chain(&TASTE).collect();
        let second = all[index(random, all.len())];
        add(random, words, second);
    }
    let logins = [
        "--user=",
        "--password-file=",
        "--ssh-key=",
        "--ga-manage-ssh=",
    ];
    let has_login = words
        .iter()
        .any(|word| logins.iter().any(|login| word.starts_with(login)));
    if random.below(if has_login { 16 } else { 4 }) == 0 {
        add(random, words, &USER_DATA);
    }
}

/// Adds some flags, and at last one that has a value which does not fit.
fn fill(random: &mut Random, words: &mut Vec<String>, flags: &[Flag], is_odd: bool) {
    let count = 1 + random.below(5);
    for _ in 0..count {
        let flag = &flags[index(random, flags.len())];
        if words.iter().any(|word| is_of(word, flag)) {
            continue;
        }
        for _ in 0..=random.below(flag.most) {
            add(random, words, flag);
        }
    }
    let odd: Vec<&Flag> = flags.iter().filter(|flag| !flag.bad.is_empty()).collect();
    if is_odd {
        let flag = odd[index(random, odd.len())];
        let has_params = flag.good[0].contains(':') && flag.name.starts_with("volume");
        let bad = if has_params && random.below(4) == 0 {
            pick(random, &ODD_PARAMS)
        } else {
            pick(random, flag.bad)
        };
        words.push(format!("--{}={bad}", flag.name));
    }
}

/// Whether a word gives a value to a flag.
fn is_of(word: &str, flag: &Flag) -> bool {
    let value = word
        .strip_prefix("--")
        .and_then(|word| word.strip_prefix(flag.name));
    value.is_some_and(|value| value.starts_with('='))
}

fn add(random: &mut Random, words: &mut Vec<String>, flag: &Flag) {
    let value = pick(random, flag.good);
    words.push(format!("--{}={value}", flag.name));
}

fn pick(random: &mut Random, values: &[&'static str]) -> &'static str {
    values[index(random, values.len())]
}

fn index(random: &mut Random, length: usize) -> usize {
    usize::try_from(random.below(u64::try_from(length).unwrap_or(1))).unwrap_or(0)
}
