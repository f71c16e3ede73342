"""stub until lint"""
import click
@click.command()
def redif() -> None:
    """x"""
