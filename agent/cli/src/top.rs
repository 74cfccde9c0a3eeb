//! `kvmctl top`: what guests use now, as a live view or once.
//!
//! The agent tells counts; rates are the differences of two answers.

mod keys;
mod machines;
mod rates;
mod screen;

use std::io::IsTerminal;
use std::time::Duration;

use proto_node::node::{GetUsageRequest, GuestUsage};
use serde_json::{Value, json};
use tokio::time::Instant;

use self::keys::Key;
use self::machines::Of;
use self::rates::{Row, rows};
use self::screen::{Event, Screen};
use crate::args::{Sort, Top};
use crate::client::Client;
use crate::failure::Failure;
use crate::output::table::render;
use crate::output::{OutputFormat, guests, print, print_value};
use crate::scope::Scope;

/// Shows it.
pub async fn run(scope: &Scope, args: Top) -> Result<(), Failure> {
    let yaml = match &args.output {
        None => None,
        Some(OutputFormat::Json) => Some(false),
        Some(OutputFormat::Yaml) => Some(true),
        Some(_) => return Err(Failure::Usage("top prints json or yaml".to_owned())),
    };
    let mut view = View {
        client: Client::new(scope)?,
        request: GetUsageRequest {
            namespace: if args.all_namespaces {
                String::new()
            } else {
                scope.namespace().to_owned()
            },
            name: String::new(),
        },
        before: Vec::new(),
        of: Of::parse(&args.of)?,
        args,
    };
    if view.args.once || yaml.is_some() || !std::io::stdout().is_terminal() {
        return view.once(yaml).await;
    }
    view.live().await
}

struct View {
    client: Client,
    request: GetUsageRequest,
    args: Top,
    before: Vec<GuestUsage>,
    of: Of,
}

impl View {
    /// One table or document, of two reads.
    async fn once(&mut self, yaml: Option<bool>) -> Result<(), Failure> {
        self.before = self.read_usage().await?;
        tokio::select! {
            () = tokio::time::sleep(self.args.interval) => {}
            _ = tokio::signal::ctrl_c() => return Err(Failure::Interrupted(String::new())),
        }
        let rows = self.rows().await?;
        match yaml {
            Some(yaml) => {
                let items: Vec<Value> = rows.iter().map(Row::to_json).collect();
                print_value(&json!({"items": items}), yaml)
            }
            None => print(&render(&self.cells(&rows))),
        }
    }

    /// A view that is made anew until it is left.
    async fn live(&mut self) -> Result<(), Failure> {
        let mut screen = Screen::enter()?;
        screen.show("looking", &[])?;
        let mut seen = Vec::new();
        self.before = tokio::select! {
            read = self.read_usage() => read?,
            () = screen.left() => return Ok(()),
        };
        // Rates are there soon, and then over the whole interval.
        let mut pause = Duration::from_millis(500).min(self.args.interval);
        loop {
            if self.watch_keys(&mut screen, &seen, pause).await? {
                return Ok(());
            }
            pause = self.args.interval;
            let read = tokio::select! {
                read = self.rows() => read,
                () = screen.left() => return Ok(()),
            };
            match read {
                Ok(rows) => {
                    seen = rows;
                    self.paint(&mut screen, &seen)?;
                }
                // The agent may be restarted meanwhile; its guests go on.
                Err(Failure::Unreachable(_)) => {
                    seen.clear();
                    screen.show("the agent does not answer; q leaves", &[])?;
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Does what is typed until the pause is over; true when the person leaves.
    async fn watch_keys(
        &mut self,
        screen: &mut Screen,
        seen: &[Row],
        pause: Duration,
    ) -> Result<bool, Failure> {
        let until = Instant::now() + pause;
        loop {
            let typed = match screen.wait(until).await {
                Event::Time => return Ok(false),
                Event::Resized => Vec::new(),
                Event::Keys(typed) => typed,
            };
            for key in typed {
                match key {
                    Key::Leave => return Ok(true),
                    Key::Sort(sort) => self.args.sort = sort,
                    _ => screen.scroll(key),
                }
            }
            if !seen.is_empty() {
                self.paint(screen, seen)?;
            }
        }
    }

    fn paint(&self, screen: &mut Screen, seen: &[Row]) -> Result<(), Failure> {
        let by = match self.args.sort {
            Sort::Name => "name",
            Sort::Cpu => "CPU",
            Sort::Memory => "memory",
        };
        let guests = match (self.of.machines, seen.len()) {
            (false, count) => guests(count),
            (true, 1) => String::from("1 machine"),
            (true, count) => format!("{count} machines"),
        };
        let head = format!("{guests} by {by}; q leaves, n c m sort, arrows scroll");
        let mut rows = seen.to_vec();
        self.sort(&mut rows);
        screen.show(&head, &self.cells(&rows))
    }

    async fn read_usage(&mut self) -> Result<Vec<GuestUsage>, Failure> {
        let asked = self.client.usage(self.request.clone()).await;
        asked.map_err(|status| Failure::of_status(&status, "VMI", "", self.client.address()))
    }

    async fn rows(&mut self) -> Result<Vec<Row>, Failure> {
        let now = self.read_usage().await?;
        let mut all = rows(&self.before, &now);
        self.before = now;
        if self.of.machines {
            let machines = machines::list(&mut self.client, &self.request.namespace).await?;
            all = machines::rows(&machines, all);
        }
        let mut rows = self.of.choose(all)?;
        self.sort(&mut rows);
        Ok(rows)
    }

    fn sort(&self, rows: &mut [Row]) {
        match self.args.sort {
            // As the agent tells them, which is by namespace first.
            Sort::Name => {
                rows.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)))
            }
            Sort::Cpu => rows.sort_by(|a, b| b.cpus.total_cmp(&a.cpus)),
            Sort::Memory => rows.sort_by_key(|row| std::cmp::Reverse(row.resident_bytes)),
        }
    }

    fn cells(&self, rows: &[Row]) -> Vec<Vec<String>> {
        let mut head = Row::head(self.of.machines);
        if self.args.all_namespaces {
            head.insert(0, "NAMESPACE".to_owned());
        }
        let cells = rows.iter().map(|row| {
            let mut cells = row.cells();
            if self.args.all_namespaces {
                cells.insert(0, row.namespace.clone());
            }
            cells
        });
        std::iter::once(head).chain(cells).collect()
    }
}
