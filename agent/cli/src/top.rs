//! `kvmctl top`: what guests use now, as a live view or once.
//!
//! The agent tells counts; rates are the differences of two answers.

mod rates;
mod screen;

use std::io::IsTerminal;
use std::time::Duration;

use proto_node::node::{GetUsageRequest, GuestUsage};
use serde_json::{Value, json};

use self::rates::{Row, rows};
use crate::args::{Sort, Top};
use crate::client::Client;
use crate::failure::Failure;
use crate::output::table::render;
use crate::output::{OutputFormat, print, print_value};
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
}

impl View {
    /// One table or document, of two looks.
    async fn once(&mut self, yaml: Option<bool>) -> Result<(), Failure> {
        self.before = self.look().await?;
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
        let mut screen = screen::Screen::enter()?;
        self.before = self.look().await?;
        screen.show("looking", &[])?;
        let mut pause = Duration::from_millis(500).min(self.args.interval);
        loop {
            if screen.wait(pause).await == screen::Next::Leave {
                return Ok(());
            }
            pause = self.args.interval;
            match self.rows().await {
                Ok(rows) => {
                    let head = format!("{} guests; q leaves", rows.len());
                    let cells = self.cells(&rows);
                    screen.show(&head, &cells)?;
                }
                // The agent may be restarted meanwhile; its guests go on.
                Err(Failure::Unreachable(_)) => screen.show("the agent does not answer", &[])?,
                Err(failure) => return Err(failure),
            }
        }
    }

    async fn look(&mut self) -> Result<Vec<GuestUsage>, Failure> {
        let asked = self.client.usage(self.request.clone()).await;
        asked.map_err(|status| Failure::of_status(&status, "VMI", "", self.client.address()))
    }

    async fn rows(&mut self) -> Result<Vec<Row>, Failure> {
        let now = self.look().await?;
        let mut rows = rows(&self.before, &now);
        self.before = now;
        match self.args.sort {
            Sort::Name => {}
            Sort::Cpu => rows.sort_by(|a, b| b.cpus.total_cmp(&a.cpus)),
            Sort::Memory => rows.sort_by_key(|row| std::cmp::Reverse(row.resident_bytes)),
        }
        Ok(rows)
    }

    fn cells(&self, rows: &[Row]) -> Vec<Vec<String>> {
        let mut head = Row::head();
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
