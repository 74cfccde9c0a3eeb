//! `kvmctl image`: what a node keeps of images.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use proto_node::node::{
    GetImageUsageRequest, GetImageUsageResponse, ListImagesRequest, NodeImage, PruneImagesRequest,
    PullImageRequest, PullImageResponse, RemoveImagesRequest,
};
use serde_json::{Value, json};
use tonic::Status;

use crate::args::{
    Image, ImageCommand, ImageOutput, ImageUsage, ListImages, PruneImages, PullImage, RemoveImages,
};
use crate::client::Client;
use crate::failure::Failure;
use crate::output::bar::{bar, bytes};
use crate::output::{print, print_line, print_value, table};
use crate::scope::Scope;
use crate::time::age;

/// Digits of a digest that are shown.
const DIGITS: usize = 12;

/// Interval between lines on the progress of a pull, without a terminal.
const EVERY: Duration = Duration::from_secs(5);

/// Runs one of its verbs.
pub async fn run(scope: &Scope, args: &Image) -> Result<(), Failure> {
    match &args.command {
        ImageCommand::Ls(args) => list(scope, args).await,
        ImageCommand::Pull(args) => pull(scope, args).await,
        ImageCommand::Rm(args) => remove(scope, args).await,
        ImageCommand::Df(args) => usage(scope, args).await,
        ImageCommand::Prune(args) => prune(scope, args).await,
    }
}

async fn list(scope: &Scope, args: &ListImages) -> Result<(), Failure> {
    let mut client = Client::new(scope)?;
    let answer = client.images().list_images(ListImagesRequest {}).await;
    let answer = answer.map_err(|status| refusal(&client, &status, ""))?;
    let images = answer.into_inner().images;
    match args.output {
        Some(ImageOutput::Name) => images
            .iter()
            .try_for_each(|image| print_line(&image.digest)),
        Some(output) => {
            let items: Vec<Value> = images.iter().map(image_json).collect();
            print_value(&json!({"items": items}), output == ImageOutput::Yaml)
        }
        None if images.is_empty() => {
            crate::output::note("the node keeps no images");
            Ok(())
        }
        None => {
            let headings = ["IMAGE", "DIGEST", "SIZE", "ON DISK", "USED", "IN USE"];
            let headings = headings.map(str::to_owned).to_vec();
            let rows = (!args.no_headers).then_some(headings).into_iter();
            let rows: Vec<Vec<String>> = rows.chain(images.iter().map(row)).collect();
            print(&table::render(&rows))
        }
    }
}

/// Messages of the node's own services have no form of Kubernetes': this is theirs. What is empty is left out.
fn image_json(image: &NodeImage) -> Value {
    let mut value = json!({
        "digest": image.digest,
        "names": image.names,
        "virtualBytes": image.virtual_bytes,
        "diskBytes": image.disk_bytes,
        "lastUsed": image.last_used,
        "inUse": image.in_use,
    });
    for (name, text) in [
        ("pathHash", &image.path_hash),
        ("defaultInstancetype", &image.default_instancetype),
        ("defaultInstancetypeKind", &image.default_instancetype_kind),
        ("defaultPreference", &image.default_preference),
        ("defaultPreferenceKind", &image.default_preference_kind),
    ] {
        if !text.is_empty() {
            value[name] = json!(text);
        }
    }
    value
}

fn usage_json(usage: &GetImageUsageResponse) -> Value {
    json!({
        "directory": usage.directory,
        "capacityBytes": usage.capacity_bytes,
        "availableBytes": usage.available_bytes,
        "disks": usage.disks,
        "diskBytes": usage.disk_bytes,
        "disksInUse": usage.disks_in_use,
        "inUseBytes": usage.in_use_bytes,
        "layers": usage.layers,
        "layerBytes": usage.layer_bytes,
        "highPercent": usage.high_percent,
        "lowPercent": usage.low_percent,
    })
}

fn row(image: &NodeImage) -> Vec<String> {
    let digest = image.digest.rsplit(':').next().unwrap_or(&image.digest);
    let names = match image.names.as_slice() {
        [] => String::from("<none>"),
        names => names.join(","),
    };
    vec![
        names,
        digest.chars().take(DIGITS).collect(),
        bytes(image.virtual_bytes),
        bytes(image.disk_bytes),
        age(&image.last_used),
        String::from(if image.in_use { "yes" } else { "no" }),
    ]
}

async fn pull(scope: &Scope, args: &PullImage) -> Result<(), Failure> {
    let mut client = Client::new(scope)?;
    let request = PullImageRequest {
        namespace: scope.namespace().to_owned(),
        image: args.image.clone(),
        pull_secret: args.pull_secret.clone(),
        path: args.path.clone(),
        pull_policy: args.pull_policy.clone(),
    };
    let refused = |client: &Client, status: &Status| refusal(client, status, &args.image);
    let answer = client.images().pull_image(request).await;
    let mut words = answer
        .map_err(|status| refused(&client, &status))?
        .into_inner();
    let mut bar = Bar::new();
    loop {
        let word = words.message().await;
        match word.map_err(|status| refused(&client, &status))? {
            None => {
                bar.end();
                return Err(Failure::refused(
                    "the agent ended before the image was there",
                ));
            }
            Some(word) if word.digest.is_empty() => bar.show(&args.image, &word),
            Some(word) => {
                bar.end();
                return print_line(&format!("{} {}", args.image, word.digest));
            }
        }
    }
}

/// Progress of a pull, for people.
struct Bar {
    began: Instant,
    /// The stage, and bytes that were there at its beginning.
    first: Option<(String, u64)>,
    printed_at: Option<Instant>,
    is_terminal: bool,
}

impl Bar {
    fn new() -> Self {
        Self {
            began: Instant::now(),
            first: None,
            printed_at: None,
            is_terminal: std::io::stderr().is_terminal(),
        }
    }

    fn show(&mut self, image: &str, word: &PullImageResponse) {
        let is_due = self.printed_at.is_none_or(|at| at.elapsed() >= EVERY);
        if !self.is_terminal && !is_due {
            return;
        }
        self.printed_at = Some(Instant::now());
        if self
            .first
            .as_ref()
            .is_none_or(|(stage, _)| *stage != word.stage)
        {
            self.began = Instant::now();
            self.first = Some((word.stage.clone(), word.done_bytes));
        }
        let first = self.first.as_ref().map_or(0, |(_, first)| *first);
        let text = progress(image, word, first, self.began.elapsed());
        let mut out = std::io::stderr();
        // Nobody need look.
        drop(if self.is_terminal {
            write!(out, "\r\x1b[K{text}").and_then(|()| out.flush())
        } else {
            writeln!(out, "{text}")
        });
    }

    /// Nothing of it stays on a terminal.
    fn end(&self) {
        if self.is_terminal && self.printed_at.is_some() {
            let mut out = std::io::stderr();
            // Nobody need look.
            drop(write!(out, "\r\x1b[K").and_then(|()| out.flush()));
        }
    }
}

fn progress(image: &str, word: &PullImageResponse, first: u64, since: Duration) -> String {
    let (done, total) = (word.done_bytes, word.total_bytes);
    let stage = match word.stage.as_str() {
        // That is what was asked for.
        "Pulling" | "" => "",
        stage => &format!("{}  ", stage.to_lowercase()),
    };
    if total == 0 && stage.is_empty() {
        return format!("{image}  waits for the registry");
    }
    if total == 0 {
        return format!("{image}  {}", stage.trim_end());
    }
    let done = done.min(total);
    let bar = bar(done, total, 15);
    let percent = done * 100 / total;
    let millis = u64::try_from(since.as_millis()).unwrap_or(u64::MAX).max(1);
    let rate = done.saturating_sub(first).saturating_mul(1000) / millis;
    let left = if rate == 0 {
        String::new()
    } else {
        format!("  {}/s  {} s left", bytes(rate), (total - done) / rate)
    };
    format!(
        "{image}  {stage}{bar}  {percent} %  {}/{}{left}",
        bytes(done),
        bytes(total)
    )
}

async fn remove(scope: &Scope, args: &RemoveImages) -> Result<(), Failure> {
    let mut client = Client::new(scope)?;
    let request = RemoveImagesRequest {
        images: args.images.clone(),
    };
    let answer = client.images().remove_images(request).await;
    let answer = answer.map_err(|status| refusal(&client, &status, ""))?;
    for image in answer.into_inner().removed {
        print_line(&format!("{} removed", image.digest))?;
    }
    Ok(())
}

async fn usage(scope: &Scope, args: &ImageUsage) -> Result<(), Failure> {
    let mut client = Client::new(scope)?;
    let answer = client
        .images()
        .get_image_usage(GetImageUsageRequest {})
        .await;
    let answer = answer.map_err(|status| refusal(&client, &status, ""))?;
    let usage = answer.into_inner();
    match args.output {
        Some(ImageOutput::Name) => print_line(&usage.directory),
        Some(output) => print_value(&usage_json(&usage), output == ImageOutput::Yaml),
        None => print(&lines(&usage)),
    }
}

fn lines(usage: &GetImageUsageResponse) -> String {
    let GetImageUsageResponse {
        disks,
        disks_in_use,
        layers,
        ..
    } = usage;
    let free = usage.disk_bytes.saturating_sub(usage.in_use_bytes);
    let rows = [
        ["TYPE", "TOTAL", "IN USE", "SIZE", "RECLAIMABLE"].map(str::to_owned),
        [
            String::from("disks"),
            disks.to_string(),
            disks_in_use.to_string(),
            bytes(usage.disk_bytes),
            bytes(free),
        ],
        [
            String::from("layers"),
            layers.to_string(),
            String::new(),
            bytes(usage.layer_bytes),
            bytes(usage.layer_bytes),
        ],
    ];
    let rows: Vec<Vec<String>> = rows.into_iter().map(Vec::from).collect();
    format!(
        "{}\n{}: {} of {} free; from {} % in use on, disks that no guest has are removed until {} % are\n",
        table::render(&rows),
        usage.directory,
        bytes(usage.available_bytes),
        bytes(usage.capacity_bytes),
        usage.high_percent,
        usage.low_percent
    )
}

async fn prune(scope: &Scope, args: &PruneImages) -> Result<(), Failure> {
    let mut client = Client::new(scope)?;
    let request = PruneImagesRequest {
        dry_run: args.dry_run.is_on,
    };
    let answer = client.images().prune_images(request).await;
    let answer = answer.map_err(|status| refusal(&client, &status, ""))?;
    let pruned = answer.into_inner();
    for image in &pruned.removed {
        print_line(&format!(
            "{} removed{}",
            image.digest,
            args.dry_run.suffix()
        ))?;
    }
    if pruned.layers > 0 {
        let suffix = args.dry_run.suffix();
        print_line(&format!(
            "{} layers of pulls removed{suffix}",
            pruned.layers
        ))?;
    }
    let freed = if args.dry_run.is_on {
        "would be freed"
    } else {
        "freed"
    };
    print_line(&format!("{} {freed}", bytes(pruned.freed_bytes)))
}

fn refusal(client: &Client, status: &Status, image: &str) -> Failure {
    Failure::of_status(status, "image", image, client.address())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_and_what_they_take_have_a_form_for_programs() {
        let image = NodeImage {
            digest: String::from("sha256:a"),
            virtual_bytes: 5,
            default_preference: String::from("fedora"),
            ..NodeImage::default()
        };
        let expected = json!({
            "digest": "sha256:a", "names": [], "virtualBytes": 5, "diskBytes": 0, "lastUsed": "", "inUse": false,
            "defaultPreference": "fedora",
        });
        assert_eq!(image_json(&image), expected);
        let usage = usage_json(&GetImageUsageResponse::default());
        assert_eq!(usage.as_object().map(serde_json::Map::len), Some(11));
    }

    #[test]
    fn progress_is_short() {
        let word = PullImageResponse {
            done_bytes: 200 << 20,
            total_bytes: 300 << 20,
            ..PullImageResponse::default()
        };
        let line = progress("web:1", &word, 0, Duration::from_secs(2));
        assert_eq!(
            line,
            "web:1  ██████████░░░░░  66 %  200 MiB/300 MiB  100 MiB/s  1 s left"
        );
        let word = PullImageResponse {
            stage: String::from("Converting"),
            ..word
        };
        assert_eq!(
            progress("web:1", &word, 200 << 20, Duration::from_secs(2)),
            "web:1  converting  ██████████░░░░░  66 %  200 MiB/300 MiB"
        );
        let before = PullImageResponse::default();
        assert_eq!(
            progress("web:1", &before, 0, Duration::ZERO),
            "web:1  waits for the registry"
        );
    }
}
