"""An open archive, shared by gather, audit, export, report, monitor and OAI-PMH."""
