"""An open archive: what gather, audit, export, report, monitor and OAI-PMH share."""
