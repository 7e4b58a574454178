"""The paper: protocols, runs, tables, figures and pages."""
