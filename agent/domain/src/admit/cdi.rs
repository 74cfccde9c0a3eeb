//! Specs of DataVolumes by CDI's rules, and those of a VirtualMachine by KubeVirt's. This release has no DataVolumes: what
//! is illegal there is illegal everywhere.
//!
//! Fields and words of the errors are theirs, odd ones too; as theirs, a judgement ends at the first error.

use proto_node::cdi::{
    DataVolumeSource, DataVolumeSourceHttp, DataVolumeSourceImageIo, DataVolumeSourceRegistry,
    DataVolumeSourceVddk, DataVolumeSpec,
};
use proto_node::core::{TypedLocalObjectReference, TypedObjectReference};
use proto_node::vmi::{DataVolumeTemplateSpec, VirtualMachineInstanceSpec, VirtualMachineSpec};

use super::review::Review;
use super::rules::check_allowed;
use super::volume_claim::{ACCESS_MODES, CLAIM_KIND, SIZE};
use crate::error::{FieldError, Rule};
use crate::quantity::Quantity;

const MIB: i64 = 1024 * 1024;
const EITHER_SOURCE: &str =
    "Data volume should have either Source or SourceRef, or be externally populated";
const DUPLICATE_STORAGE: &str =
    "Duplicate storage definition, both target storage and target pvc defined";
const POPULATED_TWICE: &str = "External population is incompatible with Source and SourceRef";

/// Digests of files, and how many digits they have.
const CHECKSUMS: [(&str, usize); 4] = [("md5", 32), ("sha1", 40), ("sha256", 64), ("sha512", 128)];

/// `FromStorageProfile` is CDI's own.
const VOLUME_MODES: [&str; 3] = ["Block", "Filesystem", "FromStorageProfile"];

type Judgement = Result<(), FieldError>;

fn wrong(field: impl Into<String>, message: impl Into<String>) -> Judgement {
    Err(FieldError::new(field, Rule::Invalid, message))
}

/// Judges the spec of a DataVolume. What its schema says was judged already.
pub(super) fn data_volume(spec: &DataVolumeSpec, review: &mut Review<'_>) {
    if let Err(error) = judge(spec) {
        review.push(error);
    }
}

/// What `pvc` and `storage` have in common.
struct Target<'a> {
    /// CDI's name of the member.
    name: &'static str,
    size: Option<&'a String>,
    access_modes: &'a [String],
    data_source: Option<&'a TypedLocalObjectReference>,
    data_source_ref: Option<&'a TypedObjectReference>,
}

impl<'a> Target<'a> {
    fn of(spec: &'a DataVolumeSpec) -> Option<Self> {
        if let Some(pvc) = &spec.pvc {
            let resources = pvc.resources.as_ref();
            return Some(Self {
                name: "PVC",
                size: resources.and_then(|resources| resources.requests.get(SIZE)),
                access_modes: &pvc.access_modes,
                data_source: pvc.data_source.as_ref(),
                data_source_ref: pvc.data_source_ref.as_ref(),
            });
        }
        let storage = spec.storage.as_ref()?;
        let resources = storage.resources.as_ref();
        Some(Self {
            name: "Storage",
            size: resources.and_then(|resources| resources.requests.get(SIZE)),
            access_modes: &storage.access_modes,
            data_source: storage.data_source.as_ref(),
            data_source_ref: storage.data_source_ref.as_ref(),
        })
    }

    /// Somebody else fills the claim.
    const fn is_populated(&self) -> bool {
        self.data_source.is_some() || self.data_source_ref.is_some()
    }
}

fn judge(spec: &DataVolumeSpec) -> Judgement {
    let Some(target) = Target::of(spec) else {
        return wrong("spec.PVC", "Missing Data volume PVC");
    };
    if spec.pvc.is_some() && spec.storage.is_some() {
        return wrong("spec.PVC.Storage", DUPLICATE_STORAGE);
    }
    check_size(spec, &target)?;
    check_access_modes(spec, &target)?;
    if target.is_populated() {
        return check_population(spec, &target);
    }
    match (&spec.source, &spec.source_ref) {
        (Some(source), None) => check_source(spec, source),
        (None, Some(reference)) if reference.kind != "DataSource" => {
            let message = format!(
                "Unsupported sourceRef kind {}, currently only DataSource is supported",
                reference.kind
            );
            wrong("spec.sourceRef.Kind", message)
        }
        (None, Some(_)) => Ok(()),
        _ => wrong("spec.source", EITHER_SOURCE),
    }
}

fn check_size(spec: &DataVolumeSpec, target: &Target<'_>) -> Judgement {
    let name = target.name;
    let field = format!("spec.{name}.resources.requests.size");
    let source = spec.source.as_ref();
    let is_clone = spec.source_ref.is_some()
        || source.is_some_and(|source| source.pvc.is_some() || source.snapshot.is_some());
    let Some(text) = target.size else {
        if spec.storage.is_some() && is_clone {
            return Ok(());
        }
        return wrong(field, format!("{name} size is missing"));
    };
    let Some(size) = Quantity::parse(text) else {
        // Reported already.
        return Ok(());
    };
    if size.is_negative() || size.units() == Some(0) {
        let message = format!("{name} size can't be equal or less than zero");
        return wrong(field, message);
    }
    if size.units().is_some_and(|bytes| bytes < MIB.unsigned_abs()) {
        return wrong(field, format!("{name} size should be at least 1MiB"));
    }
    Ok(())
}

fn check_access_modes(spec: &DataVolumeSpec, target: &Target<'_>) -> Judgement {
    const FIELD: &str = "spec.PVC.accessModes";
    if spec.pvc.is_some() {
        match target.access_modes.len() {
            1 => {}
            0 => {
                return wrong(FIELD, "Required value: at least 1 access mode is required");
            }
            _ => return wrong(FIELD, "PVC multiple accessModes"),
        }
    }
    let mut modes = target.access_modes.iter();
    match modes.find(|mode| !ACCESS_MODES.contains(&mode.as_str())) {
        Some(mode) => {
            let message = format!(
                "Unsupported value: {mode:?}: supported values: \"ReadOnlyMany\", \"ReadWriteMany\", \"ReadWriteOnce\", \
                 \"ReadWriteOncePod\""
            );
            wrong(FIELD, message)
        }
        None => Ok(()),
    }
}

fn check_population(spec: &DataVolumeSpec, target: &Target<'_>) -> Judgement {
    if spec.source.is_some() || spec.source_ref.is_some() {
        return wrong("spec.source", POPULATED_TWICE);
    }
    let is_core = |group: &str, kind: &str| group.is_empty() && kind != CLAIM_KIND;
    if let Some(source) = target.data_source
        && is_core(&source.api_group, &source.kind)
    {
        let message =
            "Required value: DataSource apiGroup when kind is not 'PersistentVolumeClaim'";
        return wrong("spec.dataSource.apiGroup", message);
    }
    let Some(source) = target.data_source_ref else {
        return Ok(());
    };
    if !source.namespace.is_empty() {
        let message = "Invalid value: DataSourceRef namespace not supported";
        return wrong("spec.dataSourceRef.namespace", message);
    }
    if is_core(&source.api_group, &source.kind) {
        let message =
            "Required value: DataSourceRef apiGroup when kind is not 'PersistentVolumeClaim'";
        return wrong("spec.dataSourceRef.apiGroup", message);
    }
    let is_other = |local: &TypedLocalObjectReference| {
        (&local.api_group, &local.kind, &local.name)
            != (&source.api_group, &source.kind, &source.name)
    };
    if target.data_source.is_some_and(is_other) {
        return wrong("", "DataSourceRef and DataSource must match");
    }
    Ok(())
}

/// How many sources are given.
fn source_count(source: &DataVolumeSource) -> usize {
    let given = [
        source.http.is_some(),
        source.s3.is_some(),
        source.gcs.is_some(),
        source.registry.is_some(),
        source.pvc.is_some(),
        source.upload.is_some(),
        source.blank.is_some(),
        source.imageio.is_some(),
        source.vddk.is_some(),
        source.snapshot.is_some(),
    ];
    given.into_iter().filter(|is_given| *is_given).count()
}

fn check_source(spec: &DataVolumeSpec, source: &DataVolumeSource) -> Judgement {
    match source_count(source) {
        1 => {}
        0 => return wrong("spec.source", "Missing Data volume source"),
        _ => return wrong("spec.source", "Multiple Data volume sources"),
    }
    let is_archive = spec.content_type == "archive";
    if source.blank.is_some() && is_archive {
        let message = "SourceType cannot be blank and the contentType be archive";
        return wrong("spec.contentType", message);
    }
    if let Some(registry) = &source.registry {
        if is_archive {
            let message = "ContentType must be kubevirt when Source is Registry";
            return wrong("spec.contentType", message);
        }
        return check_registry(registry);
    }
    if let Some(http) = &source.http {
        return check_http(http);
    }
    if let Some(s3) = &source.s3 {
        return check_url("S3", &s3.url);
    }
    if let Some(gcs) = &source.gcs {
        return check_url("GCS", &gcs.url);
    }
    if let Some(imageio) = &source.imageio {
        return check_imageio(imageio);
    }
    if let Some(vddk) = &source.vddk {
        return check_vddk(vddk);
    }
    Ok(())
}

fn check_http(http: &DataVolumeSourceHttp) -> Judgement {
    check_url("HTTP", &http.url)?;
    if http.checksum.is_empty() {
        return Ok(());
    }
    let field = "spec.source.HTTP.checksum";
    match checksum_error(&http.checksum) {
        Some(why) => wrong(field, format!("Invalid checksum format: {why}")),
        None => Ok(()),
    }
}

fn checksum_error(text: &str) -> Option<String> {
    let Some((algorithm, digits)) = text.split_once(':') else {
        return Some(format!(
            "invalid checksum format: expected 'algorithm:hash', got '{text}'"
        ));
    };
    let (algorithm, digits) = (algorithm.trim().to_lowercase(), digits.trim());
    if digits.is_empty() {
        return Some(String::from("checksum hash value cannot be empty"));
    }
    let known = CHECKSUMS.iter().find(|(name, _)| *name == algorithm);
    let Some((_, length)) = known else {
        return Some(format!(
            "unsupported hash algorithm '{algorithm}': supported algorithms are: md5, sha1, sha256, sha512"
        ));
    };
    if digits.len() != *length {
        return Some(format!(
            "invalid {algorithm} hash length: expected {length} hex characters, got {}",
            digits.len()
        ));
    }
    let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    (!is_hex).then(|| String::from("checksum hash is not valid hexadecimal"))
}

fn check_imageio(imageio: &DataVolumeSourceImageIo) -> Judgement {
    const FIELD: &str = "spec.source.Imageio";
    if imageio.secret_ref.is_empty() || imageio.disk_id.is_empty() {
        return wrong(FIELD, format!("{FIELD} source Imageio is not valid"));
    }
    if imageio.cert_config_map.is_empty() && imageio.insecure_skip_verify != Some(true) {
        let message =
            format!("{FIELD} source Imageio requires CertConfigMap or InsecureSkipVerify");
        return wrong(FIELD, message);
    }
    check_url("ImageIO", &imageio.url)
}

fn check_vddk(vddk: &DataVolumeSourceVddk) -> Judgement {
    const FIELD: &str = "spec.source.VDDK";
    let needed = [
        &vddk.secret_ref,
        &vddk.uuid,
        &vddk.backing_file,
        &vddk.thumbprint,
    ];
    if needed.iter().any(|text| text.is_empty()) {
        return wrong(FIELD, format!("{FIELD} source VDDK is not valid"));
    }
    if vddk.url.is_empty() {
        let field = "spec.source.VDDK.url";
        return wrong(field, "spec.source source URL is empty");
    }
    check_url("VDDK", &vddk.url)
}

/// The scheme of a URL.
fn scheme(url: &str) -> Option<&str> {
    let (scheme, _) = url.split_once(':')?;
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    let begins = scheme.bytes().next()?.is_ascii_alphabetic();
    (begins && scheme.bytes().all(legal)).then_some(scheme)
}

/// The URL of a source; that there is none was reported already where there must be one.
fn check_url(source: &str, url: &str) -> Judgement {
    let field = format!("spec.source.{source}.url");
    let is_legal = !url
        .chars()
        .any(|letter| letter.is_control() || letter == ' ');
    match scheme(url) {
        _ if url.is_empty() => Ok(()),
        Some(scheme) if is_legal && ["http", "https", "gs"].contains(&scheme) => Ok(()),
        None if !url.starts_with('/') => {
            wrong(field, format!("spec.source Invalid source URL: {url}"))
        }
        _ if !is_legal => wrong(field, format!("spec.source Invalid source URL: {url}")),
        _ => wrong(
            field,
            format!("spec.source Invalid source URL scheme: {url}"),
        ),
    }
}

fn check_registry(registry: &DataVolumeSourceRegistry) -> Judgement {
    const FIELD: &str = "spec.source.Registry";
    const METHOD: &str = "spec.source.Registry.importMethod";
    let method = registry.pull_method.as_deref();
    match (&registry.url, &registry.image_stream) {
        (Some(url), None) => {
            if !matches!(scheme(url), Some("docker" | "oci-archive")) {
                let message = format!("Illegal registry source URL scheme {url}");
                return wrong(format!("{FIELD}.URL"), message);
            }
        }
        (None, Some(_)) => {}
        _ => {
            return wrong(
                FIELD,
                "Source registry should have either URL or ImageStream",
            );
        }
    }
    if let Some(method) = method
        && !["pod", "node"].contains(&method)
    {
        let message = format!("ImportMethod {method} is neither pod, node or \"\"");
        return wrong(METHOD, message);
    }
    match &registry.image_stream {
        Some(stream) if stream.is_empty() => {
            wrong(METHOD, "Source registry ImageStream is not valid")
        }
        Some(_) if method != Some("node") => wrong(
            METHOD,
            "Source registry ImageStream is supported only with node pull import method",
        ),
        _ => Ok(()),
    }
}

/// Judges the DataVolumes that are made for a machine of a namespace.
pub(super) fn templates(spec: &VirtualMachineSpec, namespace: &str, review: &mut Review<'_>) {
    let vmi = spec.template.as_ref().and_then(|it| it.spec.as_ref());
    for (index, template) in spec.data_volume_templates.iter().enumerate() {
        // KubeVirt calls the list so.
        let field = format!("spec.dataVolumeTemplate[{index}]");
        if let Err(error) = template_of(&field, template) {
            review.push(error);
            continue;
        }
        if let Some(spec) = &template.spec {
            check_enums(
                &format!("spec.dataVolumeTemplates[{index}].spec"),
                spec,
                review,
            );
        }
        let metadata = template.metadata.clone().unwrap_or_default();
        if !vmi.is_some_and(|vmi| is_named(vmi, &metadata.name)) {
            let message = format!(
                "DataVolumeTemplate entry {field} must be referenced in the VMI template's 'volumes' list"
            );
            review.required(&field, message);
        }
        let namespace = if namespace.is_empty() {
            "default"
        } else {
            namespace
        };
        let own = metadata.namespace.as_str();
        if !own.is_empty() && own != namespace {
            let field = format!("spec.dataVolumeTemplates[{index}]");
            let message = format!(
                "Embedded DataVolume namespace {own} differs from VM namespace {namespace}"
            );
            review.push(FieldError::new(field, Rule::Invalid, message));
        }
    }
}

/// What the schema of machines allows in the two forms of a target; that of DataVolumes leaves it to CDI.
fn check_enums(path: &str, spec: &DataVolumeSpec, review: &mut Review<'_>) {
    let pvc = spec.pvc.as_ref();
    let pvc = pvc.map(|pvc| ("pvc", &pvc.access_modes, &pvc.volume_mode));
    let storage = spec.storage.as_ref();
    let storage = storage.map(|it| ("storage", &it.access_modes, &it.volume_mode));
    for (name, access_modes, volume_mode) in pvc.into_iter().chain(storage) {
        let path = format!("{path}.{name}");
        for mode in access_modes {
            check_allowed(&format!("{path}.accessModes"), mode, &ACCESS_MODES, review);
        }
        check_allowed(
            &format!("{path}.volumeMode"),
            volume_mode,
            &VOLUME_MODES,
            review,
        );
    }
}

/// Whether a volume shows the DataVolume, or its claim.
fn is_named(vmi: &VirtualMachineInstanceSpec, name: &str) -> bool {
    vmi.volumes.iter().any(|volume| {
        let claim = volume.persistent_volume_claim.as_ref();
        let data_volume = volume.data_volume.as_ref();
        claim.is_some_and(|claim| claim.claim_name == name)
            || data_volume.is_some_and(|data_volume| data_volume.name == name)
    })
}

fn template_of(field: &str, template: &DataVolumeTemplateSpec) -> Judgement {
    let name = template.metadata.as_ref().map(|it| it.name.as_str());
    if name.unwrap_or_default().is_empty() {
        let field = format!("{field}.name");
        let message =
            format!("'name' field must not be empty for DataVolumeTemplate entry {field}.");
        return Err(FieldError::new(field, Rule::Required, message));
    }
    // That there is none was reported already.
    let Some(spec) = &template.spec else {
        return Ok(());
    };
    let storage = format!("{field}.PVC.Storage");
    let Some(target) = Target::of(spec) else {
        return wrong(storage, "Missing Data volume PVC or Storage");
    };
    if spec.pvc.is_some() && spec.storage.is_some() {
        return wrong(storage, DUPLICATE_STORAGE);
    }
    let has_source = spec.source.is_some() || spec.source_ref.is_some();
    if target.is_populated() && has_source {
        return wrong(format!("{field}.source"), POPULATED_TWICE);
    }
    if !target.is_populated() && !has_source {
        let message =
            "Data volume should have either Source, SourceRef, or be externally populated";
        return wrong(format!("{field}.source.sourceRef"), message);
    }
    match spec.source.as_ref().map(source_count) {
        Some(0) => wrong(format!("{field}.source"), "Missing dataVolume valid source"),
        Some(1) | None => Ok(()),
        Some(_) => wrong(format!("{field}.source"), "Multiple dataVolume sources"),
    }
}
