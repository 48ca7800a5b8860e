//! Plots as SVG.

use plotters::coord::Shift;
use plotters::prelude::*;

/// An axis.
#[derive(Clone, Debug, Default)]
pub struct Axis {
    /// What it measures, with the unit.
    pub label: String,
    /// Whether equal ratios are equally far apart; needs figures above 0.
    pub logarithmic: bool,
}

impl Axis {
    /// A linear axis.
    pub fn linear(label: impl Into<String>) -> Self {
        Self {
            label: label.into(),
            logarithmic: false,
        }
    }

    /// A logarithmic axis.
    pub fn log(label: impl Into<String>) -> Self {
        Self {
            label: label.into(),
            logarithmic: true,
        }
    }
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    /// Points joined by lines.
    #[default]
    Line,
    /// Points alone.
    Points,
}

/// Points with a name.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// The name in the legend.
    pub name: String,
    /// The points.
    pub points: Vec<(f64, f64)>,
    /// How they are drawn.
    pub shape: Shape,
}

/// A plot.
#[derive(Clone, Debug, Default)]
pub struct Plot {
    /// The file's name, without its ending.
    pub name: String,
    /// The title.
    pub title: String,
    /// The axis to the right.
    pub x: Axis,
    /// The axis upwards.
    pub y: Axis,
    /// What is drawn.
    pub series: Vec<Series>,
}

const SIZE: (u32, u32) = (860, 520);

type Drawn = Result<(), Box<dyn std::error::Error>>;

impl Plot {
    /// The plot as an SVG document. A logarithmic axis leaves out what is not above 0.
    ///
    /// # Errors
    /// When the drawing fails, in words.
    pub fn svg(&self) -> Result<String, String> {
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            self.draw(&area).map_err(|error| error.to_string())?;
        }
        Ok(svg)
    }

    fn draw(&self, area: &DrawingArea<SVGBackend<'_>, Shift>) -> Drawn {
        area.fill(&WHITE)?;
        let (x, y) = (
            range(&self.x, self.values(|p| p.0)),
            range(&self.y, self.values(|p| p.1)),
        );
        match (self.x.logarithmic, self.y.logarithmic) {
            (false, false) => self.chart(area, x.0..x.1, y.0..y.1)?,
            (true, false) => self.chart(area, (x.0..x.1).log_scale(), y.0..y.1)?,
            (false, true) => self.chart(area, x.0..x.1, (y.0..y.1).log_scale())?,
            (true, true) => self.chart(area, (x.0..x.1).log_scale(), (y.0..y.1).log_scale())?,
        }
        area.present()?;
        Ok(())
    }

    fn values(&self, which: impl Fn(&(f64, f64)) -> f64 + Copy) -> impl Iterator<Item = f64> {
        self.series
            .iter()
            .flat_map(move |series| series.points.iter().map(which))
    }

    fn chart<X, Y>(&self, area: &DrawingArea<SVGBackend<'_>, Shift>, x: X, y: Y) -> Drawn
    where
        X: plotters::coord::ranged1d::AsRangedCoord<Value = f64>,
        Y: plotters::coord::ranged1d::AsRangedCoord<Value = f64>,
        X::CoordDescType: plotters::coord::ranged1d::ValueFormatter<f64>,
        Y::CoordDescType: plotters::coord::ranged1d::ValueFormatter<f64>,
    {
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, ("sans-serif", 20))
            .margin(14)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(x, y)?;
        let number = |value: &f64| super::table::short(*value);
        chart
            .configure_mesh()
            .x_desc(&self.x.label)
            .y_desc(&self.y.label)
            .x_label_formatter(&number)
            .y_label_formatter(&number)
            .light_line_style(WHITE)
            .draw()?;
        for (at, series) in self.series.iter().enumerate() {
            let color = Palette99::pick(at).to_rgba();
            let shown = |&&(x, y): &&(f64, f64)| {
                x.is_finite()
                    && y.is_finite()
                    && (x > 0.0 || !self.x.logarithmic)
                    && (y > 0.0 || !self.y.logarithmic)
            };
            let points: Vec<(f64, f64)> = series.points.iter().filter(shown).copied().collect();
            if series.shape == Shape::Line {
                chart.draw_series(LineSeries::new(points.clone(), color.stroke_width(2)))?;
            }
            chart
                .draw_series(
                    points
                        .iter()
                        .map(|&point| Circle::new(point, 3, color.filled())),
                )?
                .label(&series.name)
                .legend(move |(x, y)| {
                    Rectangle::new([(x, y - 4), (x + 12, y + 4)], color.filled())
                });
        }
        chart
            .configure_series_labels()
            .background_style(WHITE.mix(0.85))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        Ok(())
    }
}

/// From the least to the largest value, with some room; linear axes begin at 0 if nothing is below.
fn range(axis: &Axis, values: impl Iterator<Item = f64>) -> (f64, f64) {
    let usable = |value: &f64| value.is_finite() && (*value > 0.0 || !axis.logarithmic);
    let (low, high) = values
        .filter(usable)
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
            (low.min(value), high.max(value))
        });
    match (axis.logarithmic, low <= high) {
        (true, true) => (low / 1.2, high * 1.2),
        (true, false) => (1.0, 10.0),
        (false, true) => {
            let high = if high == low { low + 1.0 } else { high };
            (low.min(0.0), high + (high - low.min(0.0)) * 0.05)
        }
        (false, false) => (0.0, 1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_axis_is_drawn_and_what_cannot_be_shown_is_left_out() {
        let series = |points: &[(f64, f64)], shape| Series {
            name: "a <series>".to_owned(),
            points: points.to_vec(),
            shape,
        };
        for (x, y) in [(false, false), (true, false), (false, true), (true, true)] {
            let axis = |label: &str, logarithmic| Axis {
                label: label.to_owned(),
                logarithmic,
            };
            let plot = Plot {
                name: "p".to_owned(),
                title: "A plot".to_owned(),
                x: axis("rate per s", x),
                y: axis("p99 ms", y),
                series: vec![
                    series(&[(0.0, 1.0), (10.0, f64::NAN), (100.0, 3.0)], Shape::Line),
                    series(&[], Shape::Points),
                ],
            };
            let svg = plot.svg().expect("drawn");
            assert!(
                svg.starts_with("<svg")
                    && svg.contains("rate per s")
                    && svg.contains("a &lt;series&gt;")
            );
        }
    }
}
